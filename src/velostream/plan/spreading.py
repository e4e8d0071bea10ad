"""Partitioning of a source's rows over parallel tasks (`partition.strategy`); it never changes results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import UnknownNameError, UnsupportedError, did_you_mean
from velostream.plan.groups.plan import group_expressions, groups_apply
from velostream.sql.names.spelling import column
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Collection

    from velostream.model.statements import Query

SMART, HASH, STICKY, ROUND_ROBIN = "smart", "hash", "sticky", "round_robin"
STRATEGIES = (SMART, HASH, STICKY, ROUND_ROBIN)
"""The built-in strategies."""


@dataclass(frozen=True)
class Spread:
    """How the rows of a source are partitioned before anything is computed."""

    strategy: str
    partitions: int | None
    """The number of tasks; None leaves it to the source, or to the number of cores."""
    keys: tuple[str, ...] = ()
    """SQL over the source's columns; rows with equal values go to the same task."""
    why: str = ""

    @property
    def own(self) -> bool:
        """Whether it is a strategy that a user registered."""
        return self.strategy not in STRATEGIES

    def told(self) -> str:
        """The line EXPLAIN prints about it."""
        many = f", {self.partitions} partitions" if self.partitions else ""
        return f"{self.strategy}{many}: {self.why}"


def spread_of(
    query: Query,
    key: tuple[str, ...],
    strategy: str,
    partitions: int | None,
    *,
    message_key: str | None = None,
) -> Spread:
    """The partitioning that a statement asks for; UnsupportedError for `hash` without a key."""
    if strategy == HASH:
        keys = _keys(query, key, message_key)
        if not keys:
            raise UnsupportedError(
                '"partition.strategy" = "hash" partitions rows by their group or key, and this '
                "statement has none that is computed from the columns of its source",
                hint='leave the property out, or use "round_robin" or "sticky"',
                location=query.location,
            )
        why = f"rows with the same {', '.join(keys)} are brought together before anything is computed"
        return Spread(HASH, partitions, keys, why)
    if strategy == STICKY:
        return Spread(STICKY, None, (), "each partition of the source is worked on by itself, whole")
    if strategy == ROUND_ROBIN:
        return Spread(
            ROUND_ROBIN, partitions, (), "rows are dealt out evenly, whichever partition they are from"
        )
    if strategy != SMART:
        return Spread(strategy, partitions, (), "as the function that was registered under that name says")
    return Spread(SMART, partitions, (), _why_smart(query))


def check_strategy(strategy: str, registered: Collection[str]) -> None:
    """Raise UnknownNameError for a strategy that is neither built in nor registered."""
    known = (*STRATEGIES, *registered)
    if strategy not in known:
        raise UnknownNameError(
            f'"partition.strategy" = "{strategy}" is neither built in nor registered',
            hint=did_you_mean(strategy, known)
            or f"one of {', '.join(STRATEGIES)}; db.partition_strategy registers your own",
        )


def _why_smart(query: Query) -> str:
    if isinstance(query.tree, exp.Select) and groups_apply(query.tree):
        return (
            "the partitioning of the source is kept, whichever way it fits the groups: each task sums up its "
            "own rows, and only sums are brought together"
        )
    return "the partitioning of the source is kept: each row is computed by itself"


def _keys(query: Query, key: tuple[str, ...], message_key: str | None) -> tuple[str, ...]:
    """The expressions that identify a row's group or key, over the source's columns."""
    select = query.tree
    if not isinstance(select, exp.Select) or select.args.get("joins") or _reads_a_query(select):
        return ()
    if groups_apply(select):
        found = [*group_expressions(select)]
    elif key:
        results = {item.alias_or_name: item.unalias() for item in select.selects}
        found = [results.get(name, exp.column(name, quoted=True)) for name in key]
    else:
        return (message_key,) if message_key is not None else ()
    alias = select.args["from_"].this.alias_or_name
    return tuple(_unqualified(expression, alias).sql(dialect=SPARK) for expression in found)


def _reads_a_query(select: exp.Select) -> bool:
    source = select.args.get("from_")
    return source is None or not isinstance(source.this, exp.Table) or bool(select.args.get("with_"))


def _unqualified(expression: exp.Expr, alias: str) -> exp.Expr:
    """The expression without the alias of its one relation in front of column names."""

    def swap(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        first, *rest = (part.name for part in node.parts)
        return column(rest if rest and first == alias else [first, *rest])

    return expression.transform(swap)
