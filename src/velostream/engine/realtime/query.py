"""Statements in Spark's real-time mode: one query from topic to topic that forwards each record on arrival.

The query leaves out records that cannot be decoded, computed or written, and never fails because of one. In
parallel, every few seconds, the job reads the same records as a batch (a *look*), counts them and keeps the
bad ones as dead letters. Query and look have a position each, in one small durable record. Spark's own
checkpoint is discarded at every start, as for other jobs.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from velostream.engine.bad_rows.failures import explained
from velostream.engine.outputs.outputs import JobOutput
from velostream.errors import InternalError, SparkEndedError, StepError, VelostreamError
from velostream.model.columns import BAD
from velostream.plan.realtime import ROW
from velostream.spark.dataframes import private_session
from velostream.spark.failures import translated
from velostream.spark.task_slots import give_back_slots, take_slots
from velostream.spark.try_eval import SHARED, attempted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from velostream.connectors.base import Source
    from velostream.connectors.realtime import EndlessSource, RealtimeTarget
    from velostream.disk.record import Record
    from velostream.model.changes import Commit, Offset, SourceOffsets
    from velostream.plan.realtime import RowExpression

UNDECODED, TRIED, FAILED, SENT, REFUSED = "__bad", "__tried", "__failed", "__sent", "__refused"
_PUSHED = "org.apache.spark.sql.catalyst.optimizer.PushDownPredicates"
"""The optimizer rule that would make Spark compute a record again for each condition on the result."""


class RealtimeOutput(JobOutput):
    """The positions that the query has written, and those that looks have read; it writes by itself."""

    def __init__(self, target: RealtimeTarget, conversion: Conversion, record: Record) -> None:
        self.target = target
        self.conversion = conversion
        self._record = record
        last = record.load()
        if last is None:
            last = {}
            record.save(last)
        self._looked: SourceOffsets | None = last.get("looked")
        self.written: Offset | None = last.get("written")

    @property
    def offsets(self) -> SourceOffsets | None:
        """What was looked at."""
        return self._looked

    def rows(self, added: pa.Table, removed: pa.Table | None, commit: Commit) -> None:
        """Never called."""
        raise InternalError("a real-time query writes by itself")

    def record(self, *, looked: SourceOffsets | None = None, written: Offset | None = None) -> None:
        """Make a new position durable."""
        self._looked = self._looked if looked is None else looked
        self.written = self.written if written is None else written
        self._record.save({"looked": self._looked, "written": self.written})


class Conversion:
    """Converts rows of the source to records of the sink, alike for the query and for looks."""

    def __init__(self, sql: str, expression: RowExpression, target: RealtimeTarget) -> None:
        self.sql = sql
        self._expression = expression
        self._target = target

    def records(self, rows: DataFrame) -> DataFrame:
        """The records to write, for rows that have `_bad`."""
        good = rows.where(f"{BAD} IS NULL")
        tried = self._tried(good, []).where(f"{TRIED}.{ROW} IS NOT NULL")
        return self._finished(tried, []).where(f"{REFUSED} IS NULL").drop(REFUSED)

    def judged(self, rows: DataFrame) -> DataFrame:
        """All rows with the columns of the sink, and flags: bad, failed, passed the filter, refused."""
        tried = self._tried(rows, [f"{BAD} IS NOT NULL AS {UNDECODED}"])
        flags = [
            UNDECODED,
            f"NOT {UNDECODED} AND {TRIED} IS NULL AS {FAILED}",
            f"NOT {UNDECODED} AND {TRIED}.{ROW} IS NOT NULL AS {SENT}",
        ]
        return self._finished(tried, flags)

    def _tried(self, rows: DataFrame, others: Sequence[str]) -> DataFrame:
        from pyspark.sql.functions import expr

        attempt = attempted(rows.sparkSession, self._expression.sql).alias(TRIED)
        return rows.alias(self._expression.name).select(*map(expr, others), attempt)

    def _finished(self, tried: DataFrame, flags: Sequence[str]) -> DataFrame:
        names = [flag.rpartition(" ")[2] for flag in flags]
        made = tried.selectExpr(*flags, f"{TRIED}.{ROW}.*")
        made = made.selectExpr(*names, *_named(self._target.columns))
        made = made.selectExpr(*names, *_named(self._target.finished))
        return made.selectExpr("*", f"{self._target.refused} AS {REFUSED}")


def _named(columns: Mapping[str, str]) -> list[str]:
    return [f"{sql} AS {name}" for name, sql in columns.items()]


class RealtimeQuery:
    """The Structured Streaming query of a job in real-time mode."""

    def __init__(
        self,
        name: str,
        spark: SparkSession,
        source: Source,
        columns: Sequence[str] | None,
        output: RealtimeOutput,
        every: timedelta,
        checkpoint: Path,
    ) -> None:
        self._name = name
        apart = {SHARED: "false", "spark.sql.optimizer.excludedRules": _PUSHED}
        self._session = private_session(spark, apart)
        self._source = source
        self._columns = columns
        self._output = output
        self._every = every
        self._checkpoint = checkpoint
        self._query: StreamingQuery | None = None
        self._edition: Mapping[str, str] = {}
        self._batch: int | None = None
        self._slots = 0
        self._last_complete = time.monotonic()

    def start(self) -> None:
        """Start the query after the recorded position; it runs until `stop`."""
        endless = self._follow().endless(self._session, self._output.written, self._columns)
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        self._edition, self._batch = endless.edition, None
        self._slots = endless.partitions
        take_slots(self._session.sparkContext, self._slots)
        with translated():
            target = self._output.target
            writer = self._output.conversion.records(endless.frame).writeStream.format(target.form)
            writer = writer.options(**target.options).outputMode("update").queryName(self._name)
            writer = writer.option("checkpointLocation", f"file://{self._checkpoint.absolute()}")
            seconds = self._every.total_seconds()
            writer = writer.trigger(realTime=f"{seconds:g} seconds")  # type: ignore[call-overload]
            self._query = writer.start()
        self._last_complete = time.monotonic()

    def stop(self) -> None:
        """Stop at once; records written after the recorded position are written again by the next start."""
        query, self._query = self._query, None
        if query is not None:
            with suppress(SparkEndedError, ConnectionError), translated():
                query.stop()
        if self._slots:
            give_back_slots(self._session.sparkContext, self._slots)
            self._slots = 0

    @property
    def outdated(self) -> bool:
        """Whether the topic was created again, or got more partitions, since the query started."""
        return self._follow().edition != self._edition

    def written(self) -> Offset | None:
        """The position up to which all is written, if it advanced; raises the error that ended the query."""
        assert self._query is not None
        with translated():
            if not self._query.isActive:
                raise self._ended()
            progress = self._query.lastProgress
        if progress is None or progress.batchId == self._batch:
            return None
        self._batch = progress.batchId
        told = progress.sources[0].endOffset
        return self._follow().reached(told) if told else None

    def waiting(self) -> tuple[int, float]:
        """The number of partitions that no task reads, and for how many seconds."""
        if self._query is None:
            return 0, 0.0
        tracker = self._session.sparkContext.statusTracker()
        running = set(tracker.getActiveJobsIds()) & set(tracker.getJobIdsForGroup(str(self._query.runId)))
        jobs = map(tracker.getJobInfo, running)
        stages = (tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds)
        missing = max(self._slots - sum(stage.numActiveTasks for stage in stages if stage is not None), 0)
        if not missing:
            self._last_complete = time.monotonic()
        return missing, time.monotonic() - self._last_complete

    def _follow(self) -> EndlessSource:
        from velostream.connectors.realtime import EndlessSource

        assert isinstance(self._source, EndlessSource)
        return self._source

    def _ended(self) -> VelostreamError:
        """The error that ended the query."""
        assert self._query is not None
        exception = self._query.exception()
        if exception is None:
            return StepError(f'the stream of "{self._name}" ended by itself')
        return explained(exception, [self._source])
