"""Plans: how the materialized result of a statement is maintained incrementally. Pure data, without Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from velostream.errors import InternalError
from velostream.model.columns import MESSAGE_KEY, POSITION, POSITION_KEPT
from velostream.plan.groups.aggregates import Aggregate, Merge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from velostream.model.windows import Windowing
    from velostream.plan.derived.nodes import Node
    from velostream.plan.over.calls import OverCall
    from velostream.plan.steps import Step


class Kind(Enum):
    """The kind of step that a plan makes."""

    ROWS = "rows"
    KEYED_ROWS = "rows with a key, of a derived relation"
    JOINED_ROWS = "rows of a stream joined to tables"
    UPSERT = "the last row of each key"
    MESSAGES = "the last message of each key"
    GROUPS = "groups"
    WINDOWS = "groups that close"
    OVER = "rows with those around them"
    RECOMPUTE = "everything anew"
    FOLLOW = "the changes of a kept result"
    STREAM = "rows kept by event time"


@dataclass(frozen=True)
class Plan:
    """Base of all plans: the Spark SQL of the whole query, and the steps that EXPLAIN shows."""

    sql: str
    steps: tuple[Step, ...] = field(kw_only=True, default=())
    below: Node | None = field(kw_only=True, default=None)
    """The derived relation that the plan reads in place of its inputs, if any."""
    stream: str | None = field(kw_only=True, default=None)
    """The one input that is a stream: each of its rows is joined to the tables as they are when it arrives.
    """
    forgetful: bool = field(kw_only=True, default=False)
    """Whether inputs forget rows whose results stay: the result cannot be recomputed from the inputs."""
    appends: bool = field(kw_only=True, default=False)
    """Whether no row of the result is ever retracted, although the result is derived."""

    @property
    def kind(self) -> Kind:
        """The kind of step that brings the result up to date.

        The base has none: a strategy holds it while its own plan is being chosen.
        """
        raise InternalError("a plan that was not chosen is run")

    @property
    def result_key(self) -> tuple[str, ...]:
        """The key by which the plan itself stores its result; empty where it needs none."""
        return ()

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns of text that stored rows have besides those of `sql`."""
        return ()

    @property
    def by_rows(self) -> bool:
        """Whether rows of the result are only added, each by itself: a sink of them needs no state."""
        return False

    @property
    def single(self) -> bool:
        """Whether the rows of the result are added to its table singly, so that they can leave it singly."""
        return False

    @property
    def passing(self) -> bool:
        """Whether the changes of the result are those of its inputs, so that a reader needs no table."""
        return False

    @property
    def by_key(self) -> bool:
        """Whether the result has one row per key, so that `state.ttl` can forget keys."""
        return False

    @property
    def only_added(self) -> bool:
        """Whether each row is emitted once, when its window has closed, and never changes afterwards."""
        return False

    @property
    def closes(self) -> bool:
        """Whether the result consists of windows that close."""
        return False


@dataclass(frozen=True)
class RowsPlan(Plan):
    """Stateless: each input row gives its own output rows, so f(changes) are the changes of f."""

    key: tuple[str, ...] = ()
    """Over a derived relation: the key of the table, if it has one."""
    below_sql: str = ""
    """Over a derived relation: the query over its view."""
    below_keys: tuple[str, ...] = ()
    """Over a derived relation: the columns of that relation that hold the key; empty if the key is computed.
    """
    positioned: bool = False
    """Whether each row carries, hidden, the position of its input row, by which it is retracted."""

    @property
    def kind(self) -> Kind:
        """See `Plan`."""
        if self.stream is not None:
            return Kind.JOINED_ROWS
        return Kind.KEYED_ROWS if self.key else Kind.ROWS

    @property
    def result_key(self) -> tuple[str, ...]:
        """See `Plan`."""
        return self.key

    @property
    def hidden(self) -> tuple[str, ...]:
        """See `Plan`."""
        return (POSITION_KEPT,) if self.positioned else ()

    @property
    def by_rows(self) -> bool:
        """See `Plan`."""
        return self.below is None or self.stream is not None or self.appends

    @property
    def single(self) -> bool:
        """See `Plan`."""
        return not self.key and self.below is None

    @property
    def passing(self) -> bool:
        """See `Plan`."""
        return not self.positioned


@dataclass(frozen=True)
class UpsertPlan(Plan):
    """Upsert: like RowsPlan, but a later row of the same key replaces the earlier one."""

    key: tuple[str, ...]
    ordered_sql: str
    """The same query with the hidden column `POSITION_KEPT`, by which "later" is decided."""
    below_keys: tuple[str, ...] = ()
    """The columns of the input that hold the key; empty if the key is computed."""
    asked: tuple[str, ...] = field(kw_only=True)
    """System columns that `ordered_sql` needs."""
    deletes: bool = field(kw_only=True, default=False)
    """Whether `ordered_sql` also has `MESSAGE_KEY`, and `NO_ROW`: whether the key's row is deleted."""
    plain: tuple[str, ...] | None = field(kw_only=True, default=None)
    """The columns of the input that the result consists of, where it filters and computes nothing."""

    @property
    def kind(self) -> Kind:
        """See `Plan`."""
        return Kind.MESSAGES if self.deletes else Kind.UPSERT

    @property
    def result_key(self) -> tuple[str, ...]:
        """See `Plan`."""
        return self.key

    @property
    def hidden(self) -> tuple[str, ...]:
        """See `Plan`."""
        return (MESSAGE_KEY,) if MESSAGE_KEY in self.key else ()

    @property
    def by_key(self) -> bool:
        """See `Plan`."""
        return True


@dataclass(frozen=True)
class Output:
    """One visible column of a grouped result; `column` is the equal column of the finishing view, if any."""

    name: str
    column: str | None


GROUPS_VIEW = "__groups"
"""The view over which `GroupsPlan.finish_sql` computes the visible columns."""


@dataclass(frozen=True)
class GroupsPlan(Plan):
    """Groups with accumulators: Spark aggregates each batch, the table merges the accumulators.

    `partial_sql` gives one row per group: key columns, `__n`, accumulators. `finish_sql`, over
    `GROUPS_VIEW` (keys and aggregate values), gives the visible columns and `SHOWN`; None when every visible
    column is a key or an unchanged aggregate.
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
    """Over a derived relation: the columns of that relation that hold the keys, in the order of `keys`."""
    detail_sql: str = field(kw_only=True, default="")
    """With windows: one row per input row. Empty where input rows are no longer known one by one.

    Columns: `__k1`, `__k2`, … for the keys except the window bounds, `TIME`, `POSITION_KEPT`, `ROW_AS_JSON`.
    """
    windowing: Windowing | None = field(kw_only=True, default=None)
    """When groups close and when readers see them; None where groups never close."""

    @property
    def kind(self) -> Kind:
        """See `Plan`."""
        return Kind.GROUPS if self.windowing is None else Kind.WINDOWS

    @property
    def result_key(self) -> tuple[str, ...]:
        """See `Plan`."""
        return self.keys

    @property
    def by_key(self) -> bool:
        """See `Plan`."""
        return self.grouped

    @property
    def only_added(self) -> bool:
        """See `Plan`."""
        return self.windowing is not None and self.windowing.only_added

    @property
    def closes(self) -> bool:
        """See `Plan`."""
        return self.windowing is not None and self.windowing.bounded

    @property
    def mergeable(self) -> bool:
        """Whether a batch that only adds rows can be merged into the stored accumulators."""
        return all(aggregate.mergeable for aggregate in self.aggregates)

    def subtractable(self, inexact: Sequence[str]) -> bool:
        """Whether rows can be retracted by subtraction; `inexact` names the floating-point accumulators."""
        return all(
            accumulator.merge is Merge.ADD and accumulator.name not in inexact
            for aggregate in self.aggregates
            for accumulator in aggregate.accumulators
        )


@dataclass(frozen=True)
class RecomputePlan(Plan):
    """Full recompute: without keys to follow, the whole result is recomputed and the difference applied."""

    @property
    def kind(self) -> Kind:
        """See `Plan`."""
        return Kind.RECOMPUTE


@dataclass(frozen=True)
class Reach:
    """How far OVER clauses look from a row in the order of time: in rows (None: without end) and in time."""

    before: int | None
    after: int | None
    back: int
    """In microseconds, like `ahead`: how far RANGE frames look back."""
    ahead: int = 0

    def and_also(self, other: Reach) -> Reach:
        """The reach that covers both."""
        return Reach(
            _furthest(self.before, other.before),
            _furthest(self.after, other.after),
            max(self.back, other.back),
            max(self.ahead, other.ahead),
        )

    def reversed(self) -> Reach:
        """The reach in descending order of time."""
        return Reach(self.after, self.before, self.ahead, self.back)

    @property
    def bounded(self) -> bool:
        """Whether the reach in rows is finite in both directions."""
        return self.before is not None and self.after is not None

    @property
    def rows(self) -> int:
        """How many rows before the watermark the rows after it may need."""
        return (self.before or 0) + (self.after or 0)

    @property
    def span(self) -> int:
        """The same as `rows` for RANGE frames, in microseconds."""
        return self.back + self.ahead


def _furthest(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


@dataclass(frozen=True)
class OverPlan(Plan):
    """OVER over a source: rows are kept by PARTITION BY key; each new row is computed with its neighbours."""

    rows_sql: str
    """SQL of the state to keep for each new row: keys, columns and `__time`."""
    placed_sql: str
    """Like `rows_sql`, with `POSITION_KEPT`."""
    over_sql: str
    """SQL over the view of kept rows: the computed columns, and `__order`, which identifies the row."""
    calls: tuple[OverCall, ...] | None
    """The same computation as plain functions over rows; None where only `over_sql` can express it."""
    alias: str
    """The alias of the kept rows in `over_sql`."""
    shown: tuple[str | None, ...]
    """For each column of the result, the kept column it equals; None where `over_sql` computes it."""
    detail_sql: str
    """One row per input row: `TIME`, `POSITION_KEPT` and `ROW_AS_JSON`."""
    keys: tuple[str, ...]
    columns: Mapping[str, str]
    """From each source column that `over_sql` uses to the kept column that holds it."""
    reach: Reach
    timed: bool
    """Whether every OVER orders by the event time or has a frame of all rows."""
    bounded: bool
    """Whether kept rows are forgotten once no later row's frame can reach them."""
    peers: bool
    """Whether a new row changes the results of earlier rows with the same time (RANGE frames include peers).
    """
    shrinks: bool
    """Whether the source can retract rows."""
    positioned: bool = field(kw_only=True, default=False)
    """Whether each row of the result has a `_position`, in the order of time."""
    windowing: Windowing | None = field(kw_only=True, default=None)
    """When rows are shown and when they are late; None where there is no order of time."""

    @property
    def kind(self) -> Kind:
        """See `Plan`."""
        return Kind.OVER

    @property
    def hidden(self) -> tuple[str, ...]:
        """See `Plan`."""
        return (POSITION,) if self.positioned else ()

    @property
    def single(self) -> bool:
        """See `Plan`."""
        return True

    @property
    def passing(self) -> bool:
        """See `Plan`."""
        return self.only_added

    @property
    def only_added(self) -> bool:
        """See `Plan`."""
        return self.windowing is not None and self.windowing.only_added and not self.shrinks
