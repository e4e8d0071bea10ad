"""The Structured Streaming query of a job: each micro-batch is one step of the job.

The query's source is Spark's own counter (`rate-micro-batch`). Each micro-batch blocks until there is a
position that the result does not contain, and then processes up to it. Nothing polls between steps: eight
idle jobs use 0.3 % of a core. The job's progress is recorded with its result, so the checkpoint is
disposable, and is deleted at every start.
"""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from velostream.errors import SparkEndedError, StepError, VelostreamError
from velostream.model.changes import Commit, SourceOffsets
from velostream.spark.failures import translate, translated
from velostream.spark.gateway import CallFromJava

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from velostream.engine.work import Work
    from velostream.model.jobs import BatchFigures


class StepLoop:
    """The steps of one start of a job, one at a time, each in a micro-batch.

    `counted` is called with the statistics and the duration of each step.
    """

    def __init__(
        self,
        name: str,
        work: Work,
        checkpoint: Path,
        counted: Callable[[BatchFigures, float], None],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._name = name
        self._work = work
        self._checkpoint = checkpoint
        self._counted = counted
        self._clock = clock
        self._query: StreamingQuery | None = None
        self._calls: CallFromJava | None = None
        self._turn = threading.Condition()
        self._wanted: SourceOffsets | None = None
        self._failure: BaseException | None = None
        self._stopping = False

    def start(self, spark: SparkSession) -> None:
        """Start the query; its first batch waits for the first position."""
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        counter = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        writer = counter.writeStream.foreachBatch(self._batch).queryName(self._name)
        writer = writer.option("checkpointLocation", f"file://{self._checkpoint.absolute()}")
        self._query = writer.trigger(processingTime=f"{self._work.trigger_seconds} seconds").start()

    def advance_to(self, end: SourceOffsets, stop: threading.Event) -> None:
        """Process up to `end` in a batch, and wait for it; raises the error of the batch."""
        with self._turn:
            self._wanted = end
            self._turn.notify_all()
            while self._wanted is not None and self._failure is None and not stop.is_set():
                if not self._turn.wait(0.5) and self._query is not None and not self._query.isActive:
                    raise self._ended()
            if self._failure is not None:
                raise self._failure

    def _ended(self) -> VelostreamError:
        exception = self._query.exception() if self._query is not None else None
        if exception is not None:
            return translate(exception)
        return StepError(f'the stream of "{self._name}" ended by itself')

    def _batch(self, counter: DataFrame, batch: int) -> None:
        """One micro-batch. The frame that Spark passes holds only the counter, and is ignored."""
        self._calls = CallFromJava(counter.sparkSession)
        with self._turn:
            self._turn.wait_for(lambda: self._wanted is not None or self._stopping)
            end = None if self._stopping else self._wanted
        if end is None:
            return
        started = time.perf_counter()
        try:
            commit = Commit(self._name, batch, end, self._clock())
            figures = self._work.advance(self._work.offsets(), end, commit)
        except BaseException as exc:
            self._finish(exc)
            raise
        self._counted(figures, time.perf_counter() - started)
        self._finish(None)

    def _finish(self, failure: BaseException | None) -> None:
        with self._turn:
            self._failure = failure
            self._wanted = None
            self._turn.notify_all()

    def stop(self) -> None:
        """Stop the query after the current batch: an interrupted batch would have to be repeated."""
        with self._turn:
            self._stopping = True
            self._turn.notify_all()
        if self._query is not None:
            with suppress(SparkEndedError, ConnectionError), translated():
                self._query.stop()
            # Java refers to our function through its query, and we would refer to the query: a cycle across
            # both garbage collectors, never freed.
            self._query = None
        if self._calls is not None:
            self._calls.hang_up()
