"""The work of a job in real-time mode: a running query, and looks that find the records it left out."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import sqlglot
import structlog
from sqlglot import exp

from velostream.connectors.base import SinkContext
from velostream.connectors.capabilities import BadRecords, Counted, SparkReader
from velostream.disk.private import make_folder
from velostream.disk.record import Record
from velostream.engine.bad_rows.dead_letters import keep_as_told
from velostream.engine.bad_rows.failures import explained
from velostream.engine.bad_rows.places import located
from velostream.engine.bad_rows.search import Search
from velostream.engine.opening.connect import realtime_target
from velostream.engine.opening.opened_query import with_system_columns
from velostream.engine.opening.sink import shown
from velostream.engine.realtime.query import (
    FAILED,
    REFUSED,
    SENT,
    UNDECODED,
    Conversion,
    RealtimeOutput,
    RealtimeQuery,
)
from velostream.errors import (
    SourceError,
    SourceLostError,
    SourceMissingError,
    SourceNetworkError,
    SqlError,
    UnknownNameError,
    UnsupportedError,
)
from velostream.model.changes import BadRow, Commit
from velostream.model.columns import BAD, POSITION
from velostream.model.jobs import BatchFigures
from velostream.model.options import key_of
from velostream.plan.query.stars import expand_stars
from velostream.plan.realtime import cadence, row_expression
from velostream.plan.sinks import target
from velostream.spark.dataframes import empty_frame
from velostream.spark.failures import translated
from velostream.spark.try_eval import unshared
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from threading import Event

    from pyspark.sql import DataFrame, SparkSession

    from velostream.config import Settings
    from velostream.connectors.realtime import RealtimeTarget
    from velostream.engine.bad_rows.dead_letters import DeadLetters
    from velostream.engine.opening.opened_query import Opened
    from velostream.model.changes import Offset, SourceOffsets
    from velostream.model.options import CommonOptions
    from velostream.plan.sinks import Writing

log = structlog.get_logger("velostream.job")

LOOK_SECONDS = 5.0
"""Seconds between two looks at least: each is a small Spark job beside the query."""
_POLL_SECONDS = 1.0
_PATIENCE = 20.0
"""Seconds for which partitions may be without a task, as they are between two batches of the query."""
_SHOWN = 10_000


def realtime_output(
    statement: Writing, job: str, folder: Path, opened: Opened, settings: Settings, *, resumed: bool
) -> RealtimeOutput:
    """The output of a statement with its recorded positions; raises where Spark cannot compute row by row."""
    uri, properties = target(statement)
    key = key_of(properties, ()) or opened.row_key
    make_folder(folder)
    context = SinkContext(state=folder, schema=shown(opened.shape.visible), key=key, job=job)
    try:
        written_to = realtime_target(uri, properties, settings, context)
        conversion = _conversion(opened, context.schema.names, written_to)
    except UnsupportedError as error:
        raise error.at(statement.location) from error
    record = Record(
        folder / "realtime.json", f"{job} realtime", required=resumed, before=folder / "realtime.jsonl"
    )
    return RealtimeOutput(written_to, conversion, record)


def _conversion(opened: Opened, names: Sequence[str], written_to: RealtimeTarget) -> Conversion:
    """The query as one expression, analysed by Spark."""
    ((name, item),) = opened.inputs.all.items()
    tree = sqlglot.parse_one(opened.plan.sql, dialect=SPARK)
    assert isinstance(tree, exp.Select), "by the rules of real-time mode"
    select = expand_stars(tree, {name: item.schema.names})
    assert isinstance(select, exp.Select)
    conversion = Conversion(select.sql(dialect=SPARK), row_expression(select, names), written_to)
    columns = with_system_columns(item.schema).append(pa.field(BAD, pa.string()))
    try:
        with translated():
            _ = conversion.records(empty_frame(opened.spark, columns)).schema
    except (SqlError, UnknownNameError) as exc:
        raise UnsupportedError(
            f'"latency" = "realtime" is not possible here: {exc.message}',
            hint="a column of the SELECT cannot use the alias of another; write its expression again",
        ) from exc
    return conversion


class RealtimeWork:
    """See `work.Work` for the contract of its methods. A step is a look at the records since the last one."""

    def __init__(
        self,
        name: str,
        job: str,
        opened: Opened,
        output: RealtimeOutput,
        options: CommonOptions,
        letters: DeadLetters,
        checkpoint: Path,
    ) -> None:
        self._name = name
        self._output = output
        self._options = options
        self._letters = letters
        self._spark = opened.spark
        ((self._id, self._item),) = opened.inputs.all.items()
        self._source = self._item.source
        self._conversion = output.conversion
        columns = self._item.wanted()
        self._query = RealtimeQuery(
            job, opened.spark, self._source, columns, output, cadence(options), checkpoint
        )
        self._looked_at = 0.0
        self._all_seen = False
        self._outside: SourceError | None = None
        self.close_inputs = opened.close

    # --- the query --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the query at its recorded position."""
        self._query.start()

    def stop(self) -> None:
        """Stop the query."""
        self._query.stop()

    def _follow(self) -> None:
        """Record the position that the query has written; raises the error that ended it."""
        written = self._query.written()
        if written is None:
            return
        self._output.record(written=written)
        looked = (self._output.offsets or {}).get(self._id, {})
        # Only a look reports gaps, after which the source forgets them.
        self._source.commit({part: min(at, looked.get(part, 0)) for part, at in written.items()})

    # --- the contract -----------------------------------------------------------------------------------

    def offsets(self) -> SourceOffsets | None:
        """What was looked at."""
        return self._output.offsets

    def latest(self, after: SourceOffsets | None) -> SourceOffsets | None:
        """The newest position, when a look is due; unreachable brokers do not stop the query."""
        self._follow()
        have = (after or {}).get(self._id)
        try:
            newest = self._source.latest(have)
        except (SourceNetworkError, SourceMissingError) as exc:
            self._outside, self._all_seen = exc, False
            return after
        self._outside = None
        if self._query.outdated:
            log.info("realtime", job=self._name, reason="its topics have changed")
            self._query.stop()
            self.start()
        self._all_seen = newest == have and self._source.settled()
        if newest == have or time.monotonic() - self._looked_at < LOOK_SECONDS:
            return after
        return {self._id: newest}

    def advance(self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit) -> BatchFigures:
        """Look at new records: those that the query could not write become dead letters."""
        since, upto = (start or {}).get(self._id), end[self._id]
        self._looked_at = time.monotonic()
        with unshared(self._spark):
            sent, bad = self._look(since, upto)
        self._output.record(looked=end)
        counts = Counted.of(self._source).counts(since, upto)
        return BatchFigures(sum(counts.values()), sent, bad, by_partition=counts)

    def look(self, end: SourceOffsets, commit: Commit) -> BatchFigures | None:
        """A look; None when brokers were unreachable, and it is tried again later."""
        try:
            return self.advance(self.offsets(), end, commit)
        except Exception as exc:
            error = explained(exc, [self._source])
            if not isinstance(error, SourceError) or not error.retryable:
                if error is exc:
                    raise
                raise error from exc
            # Records that the topic deleted meanwhile are reported by the next look.
            self._outside = None if isinstance(error, SourceLostError) else error
            return None

    def _look(self, start: Offset | None, end: Offset) -> tuple[int, int]:
        """How many records of a range were written, and how many are bad and kept as dead letters."""
        frame = SparkReader.of(self._source).frame(
            self._spark, start, end, self._item.wanted((POSITION,)), careful=True
        )
        assert frame is not None
        judged = self._conversion.judged(frame)
        counts = judged.selectExpr(
            f"count_if({UNDECODED})",
            f"count_if({FAILED})",
            f"count_if({SENT} AND {REFUSED} IS NULL)",
            f"count_if({SENT} AND {REFUSED} IS NOT NULL)",
        ).toArrow()
        undecoded, failed, sent, refused = (column[0].as_py() for column in counts.columns)
        bad = 0
        if undecoded or BadRecords.of(self._source).has_bad_rows(start, end):
            rows = [
                replace(self._lost(row), input=self._id)
                for row in BadRecords.of(self._source).bad_rows(start, end)
            ]
            bad += self._keep("decoding", rows, start)
        if failed:
            search = Search(self._spark, self._conversion.sql, self._id, self._item.description)
            good = frame.where(f"{BAD} IS NULL").drop(BAD)
            culprits = search.culprits(good)
            bad += self._keep("computing", located(self._item, culprits, end), start)
        if refused:
            bad += self._keep("writing", self._refused(judged), start)
        return sent, bad

    def _lost(self, row: BadRow) -> BadRow:
        """The dead letter of records that are gone; the query may have written them before."""
        if row.kind != "lost" or int(row.offset.rpartition("-")[2]) >= self._written.get(row.partition, 0):
            return row
        return replace(row, reason="deleted by the broker before it was looked at; what could be written was")

    @property
    def _written(self) -> Offset:
        return self._output.written or {}

    def _refused(self, judged: DataFrame) -> list[BadRow]:
        key = "substring(key, 1, 100)" if "key" in judged.columns else "CAST(NULL AS BINARY)"
        rows = judged.where(f"{SENT} AND {REFUSED} IS NOT NULL")
        found = rows.selectExpr(REFUSED, f"{key} AS key", f"substring(value, 1, {_SHOWN}) AS value").toArrow()
        return [
            BadRow(
                row[REFUSED],
                self._output.target.name,
                "",
                (row["key"] or b"").decode(errors="replace"),
                row["value"] or b"",
            )
            for row in found.to_pylist()
        ]

    def _keep(self, stage: str, rows: list[BadRow], start: Offset | None) -> int:
        keep_as_told(self._letters, self._name, self._options, stage, f"{start}", rows)
        return len(rows)

    def state(self) -> tuple[()]:
        """None: each record is computed by itself."""
        return ()

    def lags(self) -> dict[str, int]:
        """The lag of the last look behind each partition."""
        return dict(Counted.of(self._source).lags((self.offsets() or {}).get(self._id, {})))

    def settled(self) -> bool:
        """Whether the last look saw all records, and the query reads every partition."""
        return self._all_seen and not self._query.waiting()[0]

    def health(self) -> tuple[str, str | None]:
        """The health of the source; degraded while a partition has no task."""
        if self._outside is not None:
            return self._outside.health, self._outside.message
        missing, seconds = self._query.waiting()
        if missing and seconds > _PATIENCE:
            return "degraded", f"{missing} partitions wait for a free task slot of Spark's"
        return self._source.health()

    def finished(self, offsets: SourceOffsets) -> bool:
        """Never."""
        return False

    def listen(self, news: Event) -> None:
        """See `Work`: Spark's own query waits for its source."""

    @property
    def poll_seconds(self) -> float:
        """How often the query's progress is checked."""
        return _POLL_SECONDS

    @property
    def trigger_seconds(self) -> float:
        """Zero: there are no micro-batches."""
        return 0.0

    def close(self) -> None:
        """Close source and sink."""
        self.close_inputs()
        self._output.close()


class RealtimeStream:
    """Takes the place of `Stream` in other jobs: steps are looks, beside a query that runs by itself."""

    def __init__(
        self,
        name: str,
        work: RealtimeWork,
        counted: Callable[[BatchFigures, float], None],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._name = name
        self._work = work
        self._counted = counted
        self._clock = clock

    def start(self, spark: SparkSession) -> None:
        """Start the query."""
        self._work.start()

    def advance_to(self, end: SourceOffsets, stop: Event) -> None:
        """Look at the records up to `end`."""
        figures = self._work.look(end, Commit(self._name, 0, end, self._clock()))
        if figures is not None:
            # The duration of a look is not the latency of a record.
            self._counted(figures, 0.0)

    def stop(self) -> None:
        """Stop the query."""
        self._work.stop()
