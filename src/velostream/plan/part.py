"""A part of a strategy: one query over its inputs, and the plan that maintains its result."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.model.columns import HIDDEN, MESSAGE_KEY, SYSTEM_TYPES
from velostream.plan.planner import LAST_PER_KEY, NeedsColumns, plan_query, recompute, recompute_plan
from velostream.plan.plans import UpsertPlan
from velostream.plan.query.declared_columns import declared_columns
from velostream.plan.query.own_key import row_key
from velostream.plan.query.stars import expand_stars
from velostream.plan.time.upserts import message_key
from velostream.plan.time.windows import closing
from velostream.sql.names.usage import column_usage
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from velostream.model.changes import Messages
    from velostream.model.statements import Query
    from velostream.model.windows import Windowing
    from velostream.plan.plans import Plan


@dataclass(frozen=True)
class Asked:
    """What a part is planned from."""

    query: Query
    """Its names are resolved, its windows are group keys."""
    key: tuple[str, ...] = ()
    """The declared key of the result."""
    declared: tuple[str, ...] = ()
    """The names of the result's columns, where CREATE TABLE declares them."""
    columns: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    """The columns of each input; None where they are not known."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of inputs that have a key."""
    keyed: bool = False
    """Whether a result without a declared key takes that of its only input."""
    only_grows: bool = True
    """Whether no source retracts rows."""
    messages: Mapping[str, Messages | None] = field(default_factory=dict)
    """Of sources whose later rows replace earlier ones by message key."""
    windowing: Windowing | None = None

    def planned(self, casts: Sequence[str | None] = ()) -> Part:
        """The part, with the cheapest exact plan.

        `casts` are the types to which declared columns are cast; None where they have it already. Raises
        NeedsColumns where the choice depends on columns that are not known, UnsupportedError where there is
        no plan.
        """
        query = self.query
        if self.declared:
            tree = declared_columns(query.tree, self.declared, casts or [None] * len(self.declared))
            query = replace(query, tree=tree)
        known = {name: columns for name, columns in self.columns.items() if columns is not None}
        if query.sources and system_names(query):
            # Stars are expanded first: once a view has system columns, `*` would contain them.
            query = replace(query, tree=expand_stars(query.tree, known))
        read = [*query.tables, *(ref.id for ref in query.sources)]
        own = row_key(query, self.keys)
        key = self.key or (own if self.keyed else ())
        usage = column_usage(query, known)
        used = {name: usage.get(name) for name in read}
        query, plan = self._plan(query, key, used, known)
        return Part(self, query, closing(plan, self.windowing, query), key, own, used)

    def _plan(
        self,
        query: Query,
        key: tuple[str, ...],
        used: Mapping[str, frozenset[str] | None],
        known: Mapping[str, Sequence[str]],
    ) -> tuple[Query, Plan]:
        """The plan, and the query with `*` expanded where the plan depends on it."""
        by_message = message_key(query, self.messages)
        choose = partial(
            plan_query,
            key=key,
            only_grows=self.only_grows,
            columns={name: _read(columns, known.get(name)) for name, columns in used.items()},
            message_key=by_message,
            closes=self.windowing is not None and self.windowing.bounded,
        )
        try:
            return query, choose(query)
        except NeedsColumns:
            expanded = replace(query, tree=expand_stars(query.tree, known))
        try:
            return expanded, choose(expanded)
        except NeedsColumns:
            if by_message is None or self.key:
                raise
            # The columns do not matter here: whatever they are, the plan is an upsert by message key.
            sql = query.tree.sql(dialect=SPARK)
            return query, UpsertPlan(sql, (MESSAGE_KEY,), sql, asked=(), deletes=True, steps=(LAST_PER_KEY,))


@dataclass(frozen=True)
class Part:
    """One query of a statement, and how its result is maintained.

    A statement has several where a query reads the result of another, which is kept beside the job.
    """

    asked: Asked
    query: Query
    """As Spark runs it: declared columns are named, and `*` is expanded where the plan depends on it."""
    plan: Plan
    key: tuple[str, ...]
    """The key of the result: declared, or that of the only input."""
    row_key: tuple[str, ...]
    """The key of the only input, where each row of the result is one row of it and contains the key."""
    used: Mapping[str, frozenset[str] | None]
    """The columns of each input that the query uses; None for all, also those that appear later."""

    def cast(self, casts: Sequence[str | None]) -> Part:
        """The part with declared columns cast; only Spark's types tell which have to be."""
        return self.asked.planned(casts)

    def otherwise(self, why: str) -> Iterator[Part]:
        """The same part over tables by its other plans, for where Spark's types forbid the first."""
        windowing = self.asked.windowing
        if self.plan.below is not None:
            again = recompute_plan(self.query, self.key, why)
            yield replace(self, plan=closing(again, windowing, self.query))
        if windowing is None:
            yield replace(self, plan=recompute(self.query.tree, why))

    @property
    def result_key(self) -> tuple[str, ...]:
        """The key of the result as readers see it; empty where a part of it is hidden from them."""
        key = self.plan.result_key or self.key
        return () if any(name.startswith(HIDDEN) for name in key) else key

    @property
    def result_names(self) -> tuple[str, ...] | None:
        """The columns of the result; None where only Spark knows the name of one."""
        items = self.query.tree.selects
        named = all(isinstance(item, exp.Alias | exp.Column) and not item.is_star for item in items)
        return tuple(item.alias_or_name for item in items) if named else None


def system_names(query: Query) -> frozenset[str]:
    """System columns that the query names."""
    return frozenset({column.name for column in query.tree.find_all(exp.Column)} & SYSTEM_TYPES.keys())


def _read(used: frozenset[str] | None, known: Sequence[str] | None) -> Sequence[str] | None:
    """The columns to read from an input, system columns last; None where its columns are not known."""
    if known is None or used is None:
        return known if used is None else sorted(used) or None
    folded = {name.casefold() for name in used}
    plain = [name for name in known if name.casefold() in folded]
    system = [name for name in sorted(used) if name not in plain and name.startswith("_")]
    return [*plain, *system] or known[:1]
