"""One step of a stage: advances its output from the positions that it contains to newer ones, exactly once.

`Pipeline` holds what every kind of plan needs; each kind is a class in a module of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from velostream.engine.bad_rows.search import Search
from velostream.engine.inputs.feed import DerivedFeed
from velostream.engine.inputs.lookups import LookupFeed
from velostream.engine.outputs.outputs import TableOutput, table_of, table_output
from velostream.engine.runner import Progress, Runner
from velostream.errors import InternalError
from velostream.model.columns import POSITION
from velostream.spark.dataframes import arrow_frame, observed
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from velostream.engine.bad_rows.search import Culprit
    from velostream.engine.event_time.clock import EventClock
    from velostream.engine.inputs.inputs import Inputs
    from velostream.engine.outputs.outputs import JobOutput
    from velostream.engine.rows.shape import ResultShape
    from velostream.engine.runner import Halves
    from velostream.model.changes import BadRow, Commit, SourceOffsets
    from velostream.plan.plans import Plan
    from velostream.serving.contract.table import Table


class Pipeline(ABC):
    """Runs the plan of one stage over ranges of its inputs."""

    by_row = False
    """Whether each row of the result depends on one input row only, so that there is no state."""
    groups = False
    """Whether the result is made of groups."""

    def __init__(
        self,
        plan: Plan,
        shape: ResultShape,
        inputs: Inputs,
        output: JobOutput,
        runner: Runner,
        clock: EventClock | None = None,
    ) -> None:
        self.plan = plan
        self.inputs = inputs
        self.clock = clock
        """The watermark, where the plan uses event time."""
        self._shape = shape
        self._output = output
        self._runner = runner
        self.feed: Inputs | DerivedFeed = inputs
        """What the plan's SQL reads."""
        if plan.below is not None and plan.stream is not None:
            self.feed = LookupFeed(runner, inputs, plan.below, plan.stream)
        elif plan.below is not None:
            self.feed = DerivedFeed(runner, inputs, plan.below)

    @property
    def runner(self) -> Runner:
        """Runs the SQL of the step, and has its views."""
        return self._runner

    @property
    def spark(self) -> SparkSession:
        """The Spark session that has the views of the step."""
        return self._runner.spark

    # --- a step -------------------------------------------------------------------------------------------

    def advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        """Advance the output from `start` to `end` in one commit.

        `careful`: rows that cannot be decoded are left out, and each row has the same position in every
        attempt, by which it can be excluded. Without it, a bad row fails the step.
        """
        done = Progress(0, 0)
        with self._runner.parts() as parts:
            for _ in parts:
                done += self._advance(start, end, commit, careful=careful)
        return done

    @abstractmethod
    def _advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        """One part of a step; see `Runner.parts`."""

    def pass_over(self, commit: Commit) -> Progress:
        """Record positions without processing what lies between."""
        if isinstance(self._output, TableOutput) and self._shape.key:
            self._output.table.commit_keyed(None, None, commit)
        else:
            self._output.rows(self._shape.physical.empty_table(), None, commit)
        return Progress(0, 0)

    def rebuild(self, end: SourceOffsets, commit: Commit) -> Progress:
        """Recompute the whole result as of `end`, for a job that fell behind what its inputs retain."""
        sql, done = self._whole(end), Progress(0, 0)
        with self._runner.parts() as parts:
            for _ in parts:
                found = self._runner.whole(sql)
                rows = self._finished(found)
                table_output(self._output).replace_all(rows, commit)
                done += Progress(found.num_rows, rows.num_rows)
        return done

    def _whole(self, end: SourceOffsets) -> str:
        """The SQL of the whole result; views of all rows of the inputs as of `end` are registered for it."""
        self._runner.show(self.feed.snapshot(end, careful=True))
        return self.row_sql

    def _finished(self, found: pa.Table) -> pa.Table:
        """The result of the SQL of `_whole`, as it is stored."""
        return self._shape.stored(found)

    def _cheaper_whole(self, start: SourceOffsets | None, end: SourceOffsets) -> bool:
        if not isinstance(self.feed, DerivedFeed) or not isinstance(self._output, TableOutput):
            return False
        if self.plan.forgetful:
            return False
        return self.feed.cheaper_whole(start, end, held=len(self._output.table))

    def _observed(self, frame: DataFrame) -> None:
        """Take the figures that were observed while a frame was read."""
        if self.inputs.seen.unread:
            self.inputs.seen.read(frame)
        if isinstance(self.feed, LookupFeed) and self.feed.watched:
            self.feed.observed(observed(frame, self.feed.watched))
        if self.clock is not None:
            self.clock.observed(frame)

    def _of_changes(
        self, sql: str, changes: Mapping[str, Halves], *, divisible: bool = True
    ) -> tuple[pa.Table, pa.Table | None]:
        """A query over what was added and what was retracted, None where nothing was."""
        both = self._runner.halves(sql, changes, divisible=divisible)
        if both.frame is not None:
            self._observed(both.frame)
        return both.plus, both.minus

    def _only(self, touched: pa.Table, sql: str, key: tuple[str, ...]) -> pa.Table:
        """Rows of a query whose key is among `touched`; null equals null."""
        on = " AND ".join(f"q.{quote(name)} <=> t.{quote(name)}" for name in key)
        text = f"SELECT q.* FROM ({sql}) q LEFT SEMI JOIN __touched t ON {on}"
        return self._runner.run(text, {"__touched": arrow_frame(self.spark, touched)})

    @property
    def _table(self) -> Table:
        return table_of(self._output)

    # --- steps that no input asks for ---------------------------------------------------------------------

    def unfinished(self, have: SourceOffsets | None) -> SourceOffsets | None:
        """The positions of the state, when a crash left the result a step behind it; else None."""
        return None

    def closes_at(self, *, ended: bool) -> int | None:
        """The watermark up to which results close now without new rows; None when none do.

        `ended`: no input can have another row.
        """
        return None

    @property
    def waiting(self) -> bool:
        """Whether results are open that the watermark will close."""
        return False

    def close(self, at: int, commit: Commit) -> Progress:
        """Advance the watermark to `at`, and close the results that it passes, in one commit."""
        raise InternalError(f"nothing of a {type(self).__name__} closes")

    def numbered(self, end: SourceOffsets) -> SourceOffsets:
        """The end of the next step as the output records it."""
        return end

    # --- what can be said of the plan ---------------------------------------------------------------------

    @property
    def row_sql(self) -> str:
        """The part of the plan that is evaluated for each input row, in which a bad row can be searched."""
        return self.plan.sql

    @property
    def derived(self) -> bool:
        """Whether the plan reads a derived relation, which can be recomputed at any time."""
        return self.plan.below is not None and self.plan.stream is None

    @property
    def anew(self) -> bool:
        """Whether the whole result can be recomputed from the current rows of the inputs."""
        return not self.plan.forgetful

    @property
    def stream(self) -> str | None:
        """The input whose rows are joined to tables as they arrive, if there is one."""
        return self.plan.stream

    @property
    def state(self) -> Sequence[Table]:
        """The tables that hold the state: groups, or the last row of each key."""
        return (self._output.table,) if isinstance(self._output, TableOutput) and not self.by_row else ()

    @property
    def settled_at(self) -> int | None:
        """The event time before which no result is computed again; None where there is none."""
        return None

    # --- rows that cannot be used -------------------------------------------------------------------------

    @property
    def lost(self) -> frozenset[str]:
        """Groups that are not in the table because they cannot be computed."""
        return frozenset()

    def advance_around_overflow(
        self,
        start: SourceOffsets | None,
        end: SourceOffsets,
        commit: Commit,
        keep: Callable[[list[BadRow]], None],
    ) -> Progress:
        """As `advance`, without groups that cannot be computed; `keep` is called with newly lost ones."""
        raise InternalError("only groups have sums")

    def too_late(self, at: SourceOffsets) -> dict[str, str]:
        """From the position of each replayed record that is too late to be accepted to the reason."""
        return {}

    def culprits(
        self, start: SourceOffsets | None, end: SourceOffsets
    ) -> Iterator[tuple[str, bool, Culprit]]:
        """The rows of a range for which the query fails: input, whether it was added, and the row."""
        changes = self.feed.changes(start, end, (POSITION,), careful=True)
        empty = {key: halves.plus.where("false").drop(POSITION) for key, halves in changes.items()}
        for key, halves in changes.items():
            search = Search(self.spark, self.row_sql, key, self.feed.descriptions[key])
            for came, rows in ((True, halves.plus), (False, halves.minus)):
                if rows is not None:
                    self._runner.show(empty)
                    for culprit in search.culprits(rows):
                        yield key, came, culprit
