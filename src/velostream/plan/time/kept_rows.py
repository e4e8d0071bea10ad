"""Queries over rows that are kept as state: by the clock, by event time, by message key, or all of them.

Each use of an input whose rows are kept becomes a table, and the rest of the query is maintained over these
tables incrementally, like over any others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.model.columns import CLOSED, CLOSES, EVENT_TIME, FROM, LEAVES, PASSES, TIME, UNTIL
from velostream.model.durations import format_duration
from velostream.plan.planner import LAST_PER_KEY
from velostream.plan.steps import Step, StepKind
from velostream.sql.names.spelling import relation_told
from velostream.sql.text.spark_text import SPARK
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from velostream.model.statements import Query
    from velostream.plan.time.clock_bounds import Bound

RESULT = "__result"
"""Name of the table that holds the whole result of an inner query, where the statement reads that result."""


@dataclass(frozen=True)
class KeptRows:
    """One use of an input whose rows are kept as state: by the clock, the watermark, or message key."""

    id: str
    """The table's name in the remaining query."""
    relation: str
    """The source's id, or the table's name."""
    alias: str
    bounds: tuple[Bound, ...] = ()
    conditions: tuple[exp.Expr, ...] = ()
    """The other conditions of the filter that concern these rows alone."""
    written: tuple[str, ...] = ()
    """The clock filters as written in the query."""
    message_key: str | None = None
    """The system column by which a later row replaces an earlier one; None when all rows are kept."""
    timed: bool = False
    """Whether rows are kept by event time, which the hidden column `__time` holds."""
    keep: int | None = None
    """How far the watermark must be past a row's time until it is forgotten, in microseconds; None: never."""
    closes: int | None = None
    """How far the watermark must be past a row's time until `_closed` turns true; None: no such column."""
    span: int | None = None
    """Under windows: how long after a row's event time the last window that contains it can end."""
    ttl: int | None = None
    """How long after its arrival a row is forgotten (`state.ttl`), in microseconds; None: never for that."""
    last: tuple[str, ...] = ()
    """Key columns, where of the rows behind the watermark only the last of each key is kept (ASOF JOIN)."""
    grace: int = 0
    """With `last`: how long after its event time the watermark has definitely passed a row."""
    columns: tuple[str, ...] = ()
    """The columns that are stored: those that the query uses, as far as the relation's columns are known."""
    whole: bool = False
    """Whether the query wants every column of the relation, also those that appear later."""

    def sql(self, since: int | None = None) -> str:
        """SQL of the rows that pass at any time, and from when until when each row passes.

        Rows that stop passing by `since`, in microseconds, are left out: the clock never goes back.
        """
        first = _extreme("greatest", [bound.moment for bound in self.bounds if bound.begins])
        last = _extreme("least", [bound.moment for bound in self.bounds if not bound.begins])
        alias = quote(self.alias)
        items = [f"{alias}.{quote(name)}" for name in self.columns]
        items += [f"{moment} AS {name}" for moment, name in ((first, FROM), (last, UNTIL)) if moment]
        if self.timed:
            time = f"unix_micros({alias}.{quote(EVENT_TIME)})"
            items.append(f"{time} AS {TIME}")
            items += [f"{time} + {self.keep + 1}L AS {UNTIL}"] if self.keep is not None else []
            items += [f"{time} + {self.grace + 1}L AS {PASSES}"] if self.last else []
            if self.closes is not None:
                items += [f"{time} + {self.closes + 1}L AS {CLOSES}", f"false AS {CLOSED}"]
        if self.span is not None:
            # Rounded up to an eighth of the span, so that rows share few distinct moments and are forgotten
            # in few commits. A row without a time is in no window.
            end, step = f"(unix_micros({alias}.{quote(EVENT_TIME)}) + {self.span}L)", self.span // 8 + 1
            items.append(f"coalesce({end} + {step}L - pmod({end}, {step}L), 0L) AS {LEAVES}")
        # greatest and least ignore nulls, while a comparison with null never holds.
        conditions = [each.sql(dialect=SPARK) for each in self.conditions]
        conditions += [f"({bound.value.sql(dialect=SPARK)}) IS NOT NULL" for bound in self.bounds]
        conditions += [f"{first} < {last}"] if first and last else []
        conditions += [f"{last} > {since}"] if last and since is not None else []
        where = f" WHERE {' AND '.join(f'({each})' for each in conditions)}" if conditions else ""
        return f"SELECT {', '.join(items)} FROM {quote(self.relation)} AS {alias}{where}"

    @property
    def used(self) -> frozenset[str]:
        """The columns that the filters use."""
        expressions = (*(bound.value for bound in self.bounds), *self.conditions)
        columns = [c for each in expressions for c in each.find_all(exp.Column) if not date_unit(c)]
        named = frozenset(_head(column, self.alias) for column in columns) | {*self.last}
        return named | {EVENT_TIME} if self.timed or self.span is not None else named

    @property
    def step(self) -> Step | None:
        """The step that EXPLAIN prints."""
        if self.message_key is not None:
            return LAST_PER_KEY
        if self.last:
            return Step(
                StepKind.WATERMARK,
                f"keep rows of {relation_told(self.alias)}",
                "until the watermark has passed a later row of the same key",
                state=f"the last row of each {', '.join(self.last)}; grows with their number",
            )
        if self.keep is not None:
            return self._kept_by_time(format_duration(timedelta(microseconds=self.keep)))
        if not self.bounds:
            return None
        return Step(
            StepKind.CLOCK,
            f"rows while {' AND '.join(self.written)}",
            "when a row starts and stops passing is computed once; it is added and retracted then",
            state="the rows that the clock has not passed",
        )

    def _kept_by_time(self, length: str) -> Step:
        why = "until the watermark shows that no match can arrive any more"
        if self.closes is not None:
            why += "; a row without a match is shown then"
        what = f"keep rows of {relation_told(self.alias)}"
        return Step(StepKind.WATERMARK, what, why, state=f"rows of {length}; bounded")


@dataclass(frozen=True)
class Kept:
    """A query over rows that are kept as state."""

    query: Query
    """The remaining query; it reads the kept rows as tables."""
    rows: tuple[KeptRows, ...]
    forgets: bool = False
    """Whether results stay when their kept rows are forgotten: no later row can concern those any more."""
    appends: bool = False
    """Whether no result row is retracted as long as the inputs only grow."""


def kept(query: Query, message_keys: Mapping[str, str | None]) -> Kept:
    """The query over the rows of its sources, kept as tables: all rows, or the last of each message key."""
    tree = query.tree.copy()
    taken = Taking(query)
    taken.sources(tree)
    rows = tuple(replace(each, message_key=message_keys.get(each.relation)) for each in taken.rows)
    return Kept(taken.rest(tree), rows)


class Taking:
    """Takes the rows that are kept out of one query, which then reads their tables."""

    def __init__(self, query: Query) -> None:
        self._query = query
        names = (*query.tables, *(source.id for source in query.sources))
        ctes = {cte.alias.casefold() for cte in query.tree.find_all(exp.CTE)}
        self.inputs = {name.casefold(): name for name in names if name.casefold() not in ctes}
        self.rows: list[KeptRows] = []

    def sources(self, tree: exp.Query) -> None:
        """Keep the rows of every source that is left in the tree, so that all inputs are tables."""
        ids = {source.id.casefold() for source in self._query.sources}
        for table in list(tree.find_all(exp.Table)):
            if table.name.casefold() in ids:
                self.add(table)

    def add(
        self,
        table: exp.Table,
        given: tuple[Bound, ...] = (),
        conditions: tuple[exp.Expr, ...] = (),
        written: tuple[str, ...] = (),
    ) -> None:
        """Keep the rows of one table of the tree: by these bounds, and those that satisfy the conditions."""
        relation, alias = self.inputs[table.name.casefold()], table.alias_or_name
        name = f"__live_{len(self.rows) + 1}_{relation}"
        self.rows.append(KeptRows(name, relation, alias, given, conditions, written))
        table.set("this", exp.to_identifier(name, quoted=True))
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))

    def rest(self, tree: exp.Query) -> Query:
        """The remaining query, of this tree."""
        named = {table.name.casefold() for table in tree.find_all(exp.Table)}
        tables = (name for name in self._query.tables if name.casefold() in named)
        return replace(self._query, tree=tree, sources=(), tables=(*tables, *(each.id for each in self.rows)))


def date_unit(column: exp.Column) -> bool:
    """Whether the column is in fact the unit in timestampadd(DAY, 1, ts)."""
    call = column.parent
    return (
        isinstance(call, exp.Anonymous)
        and call.name.casefold() in {"timestampadd", "dateadd", "date_add", "timestampdiff", "datediff"}
        and len(call.expressions) == 3
        and call.expressions[0] is column
    )


def _extreme(function: str, moments: list[str]) -> str | None:
    if len(moments) < 2:
        return f"({moments[0]})" if moments else None
    return f"{function}({', '.join(moments)})"


def _head(column: exp.Column, alias: str) -> str:
    """The column's own name, without the relation before it and struct fields after it."""
    names = [part.name for part in column.parts]
    qualified = len(names) > 1 and names[0].casefold() == alias.casefold()
    return str(names[1] if qualified else names[0])
