"""Plans: how one statement's result is kept right. Pure data, chosen without Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from velostream.plan.aggregates import Aggregate, Merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.plan.steps import Step

ROWS = "__n"
"""Hidden column: how many input rows a group has."""

EVERYTHING = "__all"
"""Hidden key column of an aggregate without GROUP BY; always 0."""


@dataclass(frozen=True)
class Plan:
    """Base: the Spark SQL of the whole query, and the steps that EXPLAIN shows."""

    sql: str
    steps: tuple[Step, ...] = field(kw_only=True, default=())


@dataclass(frozen=True)
class RowsPlan(Plan):
    """Each input row gives its own output rows: f(changes) are the changes of f."""


@dataclass(frozen=True)
class UpsertPlan(Plan):
    """Like rows, but a later row of the same key replaces the earlier one."""

    key: tuple[str, ...]
    ordered_sql: str
    """The same query with the hidden column `__position`, by which "later" is decided."""


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
