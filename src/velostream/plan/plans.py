"""Plans: how one statement's result is kept right. Pure data, chosen without Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from velostream.plan.groups.aggregates import Aggregate, Merge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from velostream.model.windows import Windowing
    from velostream.plan.derived.nodes import Node
    from velostream.plan.over.calls import OverCall
    from velostream.plan.steps import Step


@dataclass(frozen=True)
class Plan:
    """Base: the Spark SQL of the whole query, and the steps that EXPLAIN shows."""

    sql: str
    steps: tuple[Step, ...] = field(kw_only=True, default=())
    below: Node | None = field(kw_only=True, default=None)
    """The derived relation whose rows the plan takes instead of those of its inputs, if any."""
    stream: str | None = field(kw_only=True, default=None)
    """The one input that is a stream: its rows are joined to the tables as they are when the rows come."""
    forgetful: bool = field(kw_only=True, default=False)
    """Whether inputs forget rows while what was made of them stays: the result cannot be computed anew."""
    appends: bool = field(kw_only=True, default=False)
    """Whether no row of the result is taken back, though it is derived."""


@dataclass(frozen=True)
class RowsPlan(Plan):
    """Each input row gives its own output rows: f(changes) are the changes of f."""

    key: tuple[str, ...] = ()
    """Over a derived relation: the key of the table, if it has one."""
    below_sql: str = ""
    """Over a derived relation: the query over its view."""
    below_keys: tuple[str, ...] = ()
    """Over a derived relation: its columns that hold the key, if they do."""
    positioned: bool = False
    """Whether each row carries, hidden, the position of the row it came from, by which it is taken back."""


@dataclass(frozen=True)
class UpsertPlan(Plan):
    """Like rows, but a later row of the same key replaces the earlier one."""

    key: tuple[str, ...]
    ordered_sql: str
    """The same query with the hidden column `__position`, by which "later" is decided."""
    below_keys: tuple[str, ...] = ()
    """The columns of the input that hold the key, if they do."""
    asked: tuple[str, ...] = field(kw_only=True)
    """System columns that `ordered_sql` needs."""
    deletes: bool = field(kw_only=True, default=False)
    """Whether `ordered_sql` also has the hidden key `__key`, and `__gone` for keys that have no row."""


@dataclass(frozen=True)
class Output:
    """One visible column of a grouped result, and the column of the finishing view it equals, if any."""

    name: str
    column: str | None


@dataclass(frozen=True)
class GroupsPlan(Plan):
    """Groups with accumulators: Spark aggregates each batch, the table merges.

    `partial_sql` gives one row per group: key columns, `__n`, accumulators. `finish_sql`, over the view
    `__groups` (keys and aggregate values), gives the visible columns and `__shown`; None when every visible
    column is a key or an aggregate as it is.
    """

    partial_sql: str
    tolerant_sql: str
    """The same with sums that give NULL, rather than fail, when they do not fit their type."""
    values_sql: str
    """One row per group: key columns and the aggregates themselves as `__v…`; only its types are used."""
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    outputs: tuple[Output, ...]
    finish_sql: str | None
    having: bool
    grouped: bool
    """False for an aggregate over everything, whose one row exists even when there is no input."""
    below_keys: tuple[str, ...] = field(kw_only=True, default=())
    """Over a derived relation: its columns that hold the keys, in the order of `keys`."""
    detail_sql: str = field(kw_only=True, default="")
    """With windows: one row per input row, `__k1` and so on for the keys but the bounds, `__time`,
    `__position` and `__row`; empty where rows are not known one by one any more."""
    windowing: Windowing | None = field(kw_only=True, default=None)
    """How groups are bounded in time, and when readers see them; None where they never close."""

    @property
    def mergeable(self) -> bool:
        """Whether growing batches can be merged at all."""
        return all(aggregate.mergeable for aggregate in self.aggregates)

    def subtractable(self, inexact: Sequence[str]) -> bool:
        """Whether rows can be taken back by subtracting; `inexact` are accumulators of floating point."""
        return all(
            accumulator.merge is Merge.ADD and accumulator.name not in inexact
            for aggregate in self.aggregates
            for accumulator in aggregate.accumulators
        )


@dataclass(frozen=True)
class RecomputePlan(Plan):
    """No keys to follow: the whole result is computed again and the difference applied."""


@dataclass(frozen=True)
class Reach:
    """How far from a row, in the order of time, its OVERs look: in rows (None is without end) and in time."""

    before: int | None
    after: int | None
    back: int
    """Microseconds, as is `ahead`: of frames of time."""
    ahead: int = 0

    def and_also(self, other: Reach) -> Reach:
        """As far as either of them looks."""
        return Reach(
            _furthest(self.before, other.before),
            _furthest(self.after, other.after),
            max(self.back, other.back),
            max(self.ahead, other.ahead),
        )

    def reversed(self) -> Reach:
        """In descending order of time."""
        return Reach(self.after, self.before, self.ahead, self.back)

    @property
    def bounded(self) -> bool:
        """Whether it ends on both sides."""
        return self.before is not None and self.after is not None

    @property
    def rows(self) -> int:
        """How many rows before the watermark those after it may need."""
        return (self.before or 0) + (self.after or 0)

    @property
    def span(self) -> int:
        """The same in microseconds, for frames of time."""
        return self.back + self.ahead


def _furthest(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


@dataclass(frozen=True)
class OverPlan(Plan):
    """OVER over a source: rows are kept by key, and each that comes is computed with those around it."""

    rows_sql: str
    """What is kept of the rows that came: keys, columns and `__time`."""
    placed_sql: str
    """The same, with `__position`."""
    over_sql: str
    """What has to be computed of the view of kept rows, and `__order`, by which the row is known."""
    calls: tuple[OverCall, ...] | None
    """The same as plain functions over rows, where it is that."""
    alias: str
    """What that query calls its rows."""
    shown: tuple[str | None, ...]
    """For each column of the result the kept column that it is; None for what `over_sql` computes."""
    detail_sql: str
    """One row per input row: `__time`, `__position` and `__row`."""
    keys: tuple[str, ...]
    columns: Mapping[str, str]
    """The columns of the source that `over_sql` uses, and the kept column that each is."""
    reach: Reach
    timed: bool
    """Whether every OVER is in the order of the event time, or looks at all rows."""
    bounded: bool
    """Whether rows that no other can reach any more are forgotten."""
    peers: bool
    """Whether a row changes what was computed of earlier ones that have the same time."""
    shrinks: bool
    """Whether the source can take rows back."""
    positioned: bool = field(kw_only=True, default=False)
    """Whether each row of the result has a `_position`, in the order of time."""
    windowing: Windowing | None = field(kw_only=True, default=None)
    """When rows are shown and when they are late; None where there is no order of time."""
