"""Statements with filters on the clock: the query reads the rows that are there now, kept beside the job.

One job does both. A step first brings the live rows to the newest positions of their inputs and to the clock,
in a commit of their own, then the result to the live rows. A crash between the two leaves the result behind
tables that are complete, and the next start goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp, parse_one

from velostream.connectors.capabilities import Ordered
from velostream.engine.connect import load_needed
from velostream.engine.event_time.late import LateWindows
from velostream.engine.inputs.consistency import VERSION
from velostream.engine.inputs.inputs import Input, Inputs
from velostream.engine.inputs.origin import Origin
from velostream.engine.inputs.tables import TableSource
from velostream.engine.kept.clock_rows import ForgettingOutput, LiveOutput, live_schema
from velostream.engine.kept.stream_table import TimedOutput
from velostream.engine.outputs.outputs import TableOutput, table_of
from velostream.engine.result_schema import ResultShape, shape_of
from velostream.errors import TypeMismatchError, UnknownNameError
from velostream.model.columns import FROM, POSITION, UNTIL
from velostream.model.health import worst
from velostream.model.jobs import BatchFigures
from velostream.model.moments import micros, moment
from velostream.model.tables import TableSpec
from velostream.plan.planner import last_per_message_key
from velostream.plan.plans import RowsPlan, UpsertPlan
from velostream.plan.time.clock_filters import RESULT
from velostream.serving.durable.framing import corrupt
from velostream.spark.dataframes import private_session, query_schema
from velostream.sql.text.spark_text import SPARK
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import SparkSession

    from velostream.engine.step import ContinuousWork
    from velostream.model.changes import Commit, Offset, SourceOffsets
    from velostream.plan.time.clock_filters import LiveRows
    from velostream.serving.table.store import TableStore
    from velostream.serving.table.table import Table

CLOCK = "clock"
_SHORTEST_WAIT = 0.01


@dataclass(frozen=True)
class LiveInput:
    """Live rows, ready to be kept: what they are read from, and the table that holds them."""

    spark: SparkSession
    plan: RowsPlan | UpsertPlan
    shape: ResultShape
    inputs: Inputs
    output: LiveOutput | TimedOutput

    @property
    def goes(self) -> bool:
        """Whether rows of it are taken back again, by the clock or by a later one of the same message key."""
        by_clock = isinstance(self.output, LiveOutput) and {FROM, UNTIL} & set(self.shape.physical.names)
        return bool(by_clock) or isinstance(self.plan, UpsertPlan)


class LiveSource(TableSource, Ordered):
    """The table of live rows as an input of the statement; the key and order are those of what it holds."""

    def __init__(
        self,
        table: Table,
        reader: str,
        key: tuple[str, ...],
        order: Callable[[pa.ChunkedArray], pa.Array | pa.ChunkedArray] = lambda positions: positions,
        *,
        forgotten: bool = True,
    ) -> None:
        super().__init__(table, reader, forgotten=forgotten)
        self.key = key if set(key) <= set(table.spec.visible) else ()
        self._order = order

    def order(self, positions: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        """See `Ordered`: by the positions that the rows had at their source."""
        return self._order(positions)

    def only_forgot(self, after: Offset, upto: Offset) -> bool:
        """Whether nothing happened between two positions but that rows were forgotten."""
        return not self._forgotten and self._table.only_forgot(int(after[VERSION]), int(upto[VERSION]))

    def discover(self) -> pa.Schema:
        """The columns that the statement knows; the position only orders them."""
        schema = super().discover()
        return pa.schema([each for each in schema if each.name != POSITION])


def open_live(
    spark: SparkSession,
    live: LiveRows,
    item: Input,
    views: Mapping[str, pa.Schema],
    columns: Sequence[str],
    store: TableStore,
    owner: str,
    now: int,
) -> LiveInput:
    """Plan how the rows are kept, and open or make their table; `views` are for Spark's analysis.

    Of rows that have gone by `now` nothing is read: a long file is mostly these.
    """
    load_needed(spark, [item.source])
    session = private_session(spark)
    plan: RowsPlan | UpsertPlan
    if live.message_key is not None:
        tree = parse_one(live.sql(columns), dialect=SPARK)
        assert isinstance(tree, exp.Select)
        plan = last_per_message_key(tree, live.message_key)
    else:
        plan = RowsPlan(live.sql(columns, now), steps=(live.step,) if live.step is not None else ())
    _, shape = shape_of(session, plan, views)
    _check_types(session, live)
    leaves = live.span is not None or live.ttl is not None
    schema = live_schema(shape.physical, leaves=leaves)
    table = open_or_make(store, TableSpec(live.id, schema, shape.key, owner=owner))
    inputs = Inputs(session, {item.id: item})
    output: LiveOutput | TimedOutput = TimedOutput(table, live.last) if live.timed else LiveOutput(table, now)
    if leaves:
        output = ForgettingOutput(table, now, live.ttl)
    return LiveInput(session, plan, shape, inputs, output)


def open_or_make(store: TableStore, spec: TableSpec) -> Table:
    """A table of the job's own; columns that widened since widen it."""
    try:
        table = store.open(spec.name)
    except UnknownNameError:
        return store.create(spec)
    if table.spec.owner != spec.owner:
        raise corrupt(f'table "{spec.name}" of job "{spec.owner}" is that of "{table.spec.owner}"')
    if table.spec.schema != spec.schema:
        table.evolve(spec.schema)
    return table


def _check_types(spark: SparkSession, live: LiveRows) -> None:
    """What is compared with the clock must be of a type that Spark compares as a time."""
    for bound in live.bounds:
        text = bound.value.sql(dialect=SPARK)
        relation = f"{quote(live.relation)} AS {quote(live.alias)}"
        kind = query_schema(spark, f"SELECT {text} AS value FROM {relation}").field(0).type
        if bound.kind == "seconds":
            fits, wanted = pa.types.is_integer(kind), "BIGINT"
        else:
            fits, wanted = pa.types.is_timestamp(kind) or pa.types.is_date(kind), "TIMESTAMP"
        if not fits:
            raise TypeMismatchError(
                f"{text} is compared with the clock and is {kind}",
                hint=f"make it a {wanted}: CAST({text} AS {wanted})",
            )


@dataclass
class AgeingWork:
    """The work of a statement over live rows; see `job.Work` for the contract of its methods."""

    live: Sequence[ContinuousWork]
    """What keeps each set of live rows; their outputs are LiveOutput."""
    then: Sequence[ContinuousWork]
    """What is made of them, each of what the one before made: the last is the result."""
    clock: Callable[[], datetime]
    store: TableStore
    kept: Table | None = None
    """The result that the last of them follows, if it is kept beside the job."""

    def offsets(self) -> SourceOffsets | None:
        """What the live rows and the result contain."""
        found = {str(number): work.offsets() or {} for number, work in enumerate(self.live)}
        return {**found, RESULT: {str(n): work.offsets() or {} for n, work in enumerate(self.then)}}

    def latest(self, after: SourceOffsets | None) -> SourceOffsets | None:
        """Where the next step goes; `after` when no input moved, no row is due and the result is complete."""
        now = self._time()
        ends = {}
        for number, work in enumerate(self.live):
            have = work.offsets()
            end = work.latest(have)
            if (end is not None and end != have) or _due(work, now):
                ends[str(number)] = end or have or {}
        if not ends and not self.untouched() and not any(_newest(work) for work in self.then):
            return after
        return {**ends, CLOCK: {"at": now}}

    def untouched(self) -> bool:
        """Whether rows of what is kept are to be forgotten: nothing touched them for `state.ttl`.

        Not before whoever follows it has begun to: from then on the log tells it everything.
        """
        due = self.kept.next_due if self.kept is not None else None
        return due is not None and due <= micros(self.clock()) and self.then[-1].offsets() is not None

    def forget_untouched(self) -> None:
        """Let them go; nobody hears of it."""
        if self.kept is not None and self.untouched():
            self.kept.expire(forget=True)

    def _time(self) -> int:
        """The clock, which never goes back."""
        known = [output.clock for output in map(_output, self.live) if output.clock is not None]
        return max([micros(self.clock()), *known])

    def advance(self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit) -> BatchFigures:
        """Live rows first, then the result."""
        at = moment(end[CLOCK]["at"])
        self.forget_untouched()
        self._forget_rows(micros(at))
        figures = []
        behind = self._result_behind()
        origin = None
        for number, work in enumerate(self.live):
            target = end.get(str(number))
            if target is None:
                continue
            have, step = work.offsets(), replace(commit, offsets=target, at=at)
            if target == have:
                _output(work).age(step)
            else:
                figures.append(work.advance(have, target, step))
                origin = Origin(work.pipeline, have, target)
        if isinstance(self.then[0].pipeline, LateWindows):
            # After a crash the result may be several steps behind.
            self.then[0].pipeline.rows_come_from(origin if not behind and len(self.live) == 1 else None)
        rows_out = 0
        for work in self.then:
            newest = _newest(work)
            rows_out = 0
            if newest is not None:
                last = work.advance(work.offsets(), newest, replace(commit, offsets=newest, at=at))
                figures.append(
                    last if not self.live and work is self.then[0] else replace(last, records_in=0)
                )
                rows_out = last.records_out
        return BatchFigures(
            sum(each.records_in for each in figures),
            rows_out,
            sum(each.bad_rows for each in figures),
            sum(each.rows_looked_up for each in figures),
            sum(each.lookup_misses for each in figures),
            {part: count for each in figures for part, count in each.by_partition.items()},
            sum(each.late_rows for each in figures),
            max((each.watermark for each in figures if each.watermark is not None), default=None),
            {part: at for each in figures for part, at in each.event_times.items()},
        )

    def _result_behind(self) -> bool:
        """Whether live rows came that the result does not contain."""
        first = self.then[0]
        have, newest = first.offsets(), _newest(first)
        if have is None:
            return any(work.offsets() is not None for work in self.live)
        return newest is not None and not _only_forgot(first, have, newest)

    def catch_up(self, commit: Commit) -> None:
        """Bring the result to what the live rows are."""
        self.advance(None, {CLOCK: {"at": self._time()}}, commit)

    def _forget_rows(self, now: int) -> None:
        """Forget rows that nothing is computed from any more."""
        for output in (work.output for work in self.live):
            if isinstance(output, ForgettingOutput):
                at = now if output.ttl is not None else self.then[0].settled_at()
                if at is not None and output.due(at):
                    output.forget(at)

    def state(self) -> Sequence[Table]:
        """The rows that are kept, and what is made of them first: what follows that can be made anew."""
        return (*(table_of(work.output) for work in self.live), *self.then[0].state())

    def lags(self) -> dict[str, int]:
        """Of all inputs."""
        return {part: lag for work in (*self.live, *self.then) for part, lag in work.lags().items()}

    def settled(self) -> bool:
        """Whether no input and no clock leaves anything to a later look."""
        still = all(work.settled() for work in (*self.live, *self.then)) and not self.untouched()
        return still and not any(_due(work, self._time()) for work in self.live)

    def health(self) -> tuple[str, str | None]:
        """The worst of the inputs."""
        return worst(work.health() for work in (*self.live, *self.then))

    def finished(self, offsets: SourceOffsets) -> bool:
        """Whether nothing can come, and no row will come or go."""
        if any(_output(work).next_due is not None for work in self.live):
            return False
        for work in (*self.live, *self.then):
            have = work.offsets()
            outside = [
                key for key, item in work.inputs.all.items() if not isinstance(item.source, LiveSource)
            ]
            if have is None or not all(work.inputs.all[key].source.finished(have[key]) for key in outside):
                return False
        return True

    @property
    def poll_seconds(self) -> float:
        """As often as the inputs ask for, and in time for the next row that is due."""
        waits = [work.poll_seconds for work in (*self.live, *self.then)]
        due = [each for each in (_output(work).next_due for work in self.live) if each is not None]
        if self.kept is not None and self.kept.next_due is not None:
            due.append(self.kept.next_due)
        if due:
            waits.append(max(_SHORTEST_WAIT, (min(due) - self._time()) / 1_000_000))
        return min(waits)

    @property
    def trigger_seconds(self) -> float:
        """The statement's `trigger.interval`."""
        return self.then[-1].trigger_seconds

    def close(self) -> None:
        """Close inputs, live rows and output."""
        for work in (*self.live, *self.then):
            work.close()
        self.store.close()


def _output(work: ContinuousWork) -> LiveOutput:
    assert isinstance(work.output, LiveOutput)
    return work.output


def _newest(work: ContinuousWork) -> SourceOffsets | None:
    """The newest position, if it is not what the work has; of a sink, if there is something to write."""
    have = work.offsets()
    newest = work.latest(have)
    if newest == have or newest is None:
        return None
    if have is None or isinstance(work.output, TableOutput):
        return newest
    return None if _only_forgot(work, have, newest) else newest


def _only_forgot(work: ContinuousWork, have: SourceOffsets, newest: SourceOffsets) -> bool:
    """Whether nothing happened between two positions but that live rows were forgotten."""
    sources = [(key, item.source) for key, item in work.inputs.all.items()]
    return all(isinstance(s, LiveSource) and s.only_forgot(have[key], newest[key]) for key, s in sources)


def _due(work: ContinuousWork, now: int) -> bool:
    due = _output(work).next_due
    return due is not None and due <= now
