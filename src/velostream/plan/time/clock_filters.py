"""Queries with clock filters: they are taken out of the query and applied to the rows of each input.

For a filter such as `ts > now() - INTERVAL 1 HOUR`, Spark computes once per row from when until when the row
passes. The rows that pass now are kept as a table, and the remaining query is maintained over that table
incrementally, like over any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import UnsupportedError
from velostream.model.columns import CLOSED, CLOSES, EVENT_TIME, FROM, LEAVES, PASSES, TIME, UNTIL
from velostream.model.durations import format_duration
from velostream.plan.groups.plan import NeedsColumns
from velostream.plan.planner import LAST_PER_KEY, refuse_later_features
from velostream.plan.query.functions import clock_call, volatile_calls
from velostream.plan.query.select_names import conjuncts
from velostream.plan.steps import Step, StepKind
from velostream.plan.time.clock import Bound, NotFollowedError, bounds, has_clock
from velostream.sql.names.spelling import relation_told
from velostream.sql.text.spark_text import SPARK
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from velostream.model.statements import Query

RESULT = "__result"
"""Name of the table that holds the whole result of an inner query, where the statement reads that result."""

_HINT = (
    "compare a column with the clock, alone or with AND: ts > now() - INTERVAL 1 HOUR; "
    "or keep the filter for a SELECT over the table"
)


@dataclass(frozen=True)
class LiveRows:
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

    def sql(self, columns: Sequence[str], since: int | None = None) -> str:
        """SQL of the rows that pass at any time: these columns, and from when until when each row passes.

        Rows that stop passing by `since`, in microseconds, are left out: the clock never goes back.
        """
        first = _extreme("greatest", [bound.moment for bound in self.bounds if bound.begins])
        last = _extreme("least", [bound.moment for bound in self.bounds if not bound.begins])
        alias = quote(self.alias)
        items = [f"{alias}.{quote(name)}" for name in columns]
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
        columns = [c for each in expressions for c in each.find_all(exp.Column) if not _unit(c)]
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
class Ageing:
    """A query over rows that are kept as state."""

    query: Query
    """The remaining query; it reads the kept rows as tables."""
    live: tuple[LiveRows, ...]
    forgets: bool = False
    """Whether results stay when their kept rows are forgotten: no later row can concern those any more."""
    appends: bool = False
    """Whether no result row is retracted as long as the inputs only grow."""


def ageing(query: Query, columns: Mapping[str, Sequence[str] | None]) -> Ageing | None:
    """The query with its clock filters taken out; None when it has none.

    `columns` are the columns of each input, where they are known. Raises UnsupportedError for a clock filter
    that cannot be maintained.
    """
    tree = query.tree.copy()
    asked = [node for node in tree.find_all(exp.Func) if clock_call(node) and _filters(node)]
    if not asked:
        return None
    refuse_later_features(query)
    if query.sources and query.tables:
        raise UnsupportedError(
            "a filter on the clock in a join of a source with tables is not executed",
            detail="the source's rows are joined once, when they come",
            hint="make a table of the source with this filter, then join the tables",
            location=query.location,
        )
    taken = _Taken(query, columns, {cte.alias.casefold() for cte in tree.find_all(exp.CTE)})
    for select in list(tree.find_all(exp.Select)):
        taken.block(select)
    left = next((node for node in tree.find_all(exp.Func) if clock_call(node) and _filters(node)), None)
    if left is not None:
        raise _refused(query, left, "only comparisons of columns with the clock in a WHERE are followed")
    if query.sources:
        taken.other_sources(tree)
    rest = replace(query, tree=tree, sources=(), tables=_tables(tree, query, taken.live))
    return Ageing(rest, tuple(taken.live))


def kept(query: Query, message_keys: Mapping[str, str | None]) -> Ageing:
    """The query over the rows of its sources, kept as tables: all rows, or the last of each message key."""
    tree = query.tree.copy()
    taken = _Taken(query, {}, {cte.alias.casefold() for cte in tree.find_all(exp.CTE)})
    taken.other_sources(tree)
    live = tuple(replace(each, message_key=message_keys.get(each.relation)) for each in taken.live)
    rest = replace(query, tree=tree, sources=(), tables=_tables(tree, query, live))
    return Ageing(rest, live)


class _Taken:
    """Takes the clock filters out of the SELECTs of one query."""

    def __init__(self, query: Query, columns: Mapping[str, Sequence[str] | None], ctes: set[str]) -> None:
        self._query = query
        self._columns = columns
        self._inputs = {name.casefold(): name for name in (*query.tables, *(s.id for s in query.sources))}
        for name in ctes:
            self._inputs.pop(name, None)
        self.live: list[LiveRows] = []

    def block(self, select: exp.Select) -> None:
        """Take the clock filters out of one WHERE, with all other conditions on the same relation."""
        where = select.args.get("where")
        conditions = conjuncts(where.this if where is not None else None)
        if not any(_asks_clock(each, select) for each in conditions):
            return
        conditions = [part for each in conditions for part in _apart(each)]
        by_clock = [each for each in conditions if has_clock(each) and not each.find(exp.Query)]
        relations = _Relations(select, self._columns, self._inputs)
        of: dict[str, list[tuple[exp.Expr, tuple[Bound, ...]]]] = {}
        for condition in by_clock:
            try:
                found = tuple(bounds(condition))
                alias = relations.alias_of(condition)
                relations.check_kept(alias)
            except NotFollowedError as exc:
                raise _refused(self._query, condition, str(exc)) from exc
            of.setdefault(alias, []).append((condition, found))
        plain = [each for each in conditions if each not in by_clock]
        for alias, given in of.items():
            mine = [each for each in plain if relations.only(each, alias)]
            plain = [each for each in plain if each not in mine]
            self._add(
                relations.table(alias),
                tuple(bound for _, some in given for bound in some),
                tuple(mine),
                tuple(condition.sql(dialect=SPARK) for condition, _ in given),
            )
        select.set("where", exp.Where(this=exp.and_(*plain, copy=False)) if plain else None)

    def other_sources(self, tree: exp.Query) -> None:
        """Keep the rows of sources without a clock filter as well, so that all inputs are tables."""
        ids = {source.id.casefold() for source in self._query.sources}
        for table in list(tree.find_all(exp.Table)):
            if table.name.casefold() in ids:
                self._add(table)

    def _add(
        self,
        table: exp.Table,
        given: tuple[Bound, ...] = (),
        conditions: tuple[exp.Expr, ...] = (),
        written: tuple[str, ...] = (),
    ) -> None:
        relation, alias = self._inputs[table.name.casefold()], table.alias_or_name
        live = LiveRows(
            f"__live_{len(self.live) + 1}_{relation}", relation, alias, given, conditions, written
        )
        self.live.append(live)
        table.set("this", exp.to_identifier(live.id, quoted=True))
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


class _Relations:
    """The relations of one SELECT, by alias."""

    def __init__(
        self,
        select: exp.Select,
        columns: Mapping[str, Sequence[str] | None],
        inputs: Mapping[str, str],
    ) -> None:
        source = select.args.get("from_")
        self._joins: list[exp.Join] = select.args.get("joins") or []
        found = [*([source.this] if source is not None else []), *(join.this for join in self._joins)]
        self._all = {relation.alias_or_name.casefold(): relation for relation in found}
        self._inputs = inputs
        self._alone = len(found) == 1 and not select.args.get("laterals")
        self._columns = {
            alias: columns.get(inputs[relation.name.casefold()])
            for alias, relation in self._all.items()
            if isinstance(relation, exp.Table) and relation.name.casefold() in inputs
        }

    def alias_of(self, condition: exp.Expr) -> str:
        """The one relation that a condition concerns; NotFollowedError when there is no such relation."""
        aliases = {self._alias(column) for column in condition.find_all(exp.Column) if not _unit(column)}
        if len(aliases) != 1:
            raise NotFollowedError("it must compare columns of one relation with the clock")
        (alias,) = aliases
        if alias is None:
            raise NotFollowedError("its columns are not those of a relation in the same FROM")
        if alias not in self._columns:
            raise NotFollowedError(
                f"{relation_told(alias)} is a query of its own: write the filter inside it"
            )
        return alias

    def only(self, condition: exp.Expr, alias: str) -> bool:
        """Whether a condition can be evaluated on the rows of one relation alone."""
        if condition.find(exp.Query) or any(True for _ in volatile_calls(condition)):
            return False
        found = [self._alias(column) for column in condition.find_all(exp.Column) if not _unit(column)]
        return bool(found) and all(each == alias for each in found)

    def table(self, alias: str) -> exp.Table:
        """The table of that alias in the FROM clause."""
        table = self._all[alias]
        assert isinstance(table, exp.Table)
        return table

    def check_kept(self, alias: str) -> None:
        """NotFollowedError for the nullable side of an outer join: a retracted row would leave nulls."""
        number = list(self._all).index(alias)
        extended = number > 0 and self._joins[number - 1].side in {"LEFT", "FULL"}
        if extended or any(join.side in {"RIGHT", "FULL"} for join in self._joins[number:]):
            raise NotFollowedError(
                f"{relation_told(alias)} is the side of an outer join that may be missing: "
                "make a table of it with this filter, and join that"
            )

    def _alias(self, column: exp.Column) -> str | None:
        first = column.parts[0].name.casefold()
        if len(column.parts) > 1 and first in self._all:
            return first
        if self._alone:
            (alias,) = self._all
            known = self._columns.get(alias)
            return alias if known is None or _among(first, known) else None
        if any(known is None for known in self._columns.values()):
            raise NeedsColumns
        found = [alias for alias, known in self._columns.items() if _among(first, known or ())]
        return found[0] if len(found) == 1 else None


def _among(name: str, columns: Sequence[str]) -> bool:
    return name.startswith("_") or any(name == each.casefold() for each in columns)


def _unit(column: exp.Column) -> bool:
    """Whether the column is in fact the unit in timestampadd(DAY, 1, ts)."""
    call = column.parent
    return (
        isinstance(call, exp.Anonymous)
        and call.name.casefold() in {"timestampadd", "dateadd", "date_add", "timestampdiff", "datediff"}
        and len(call.expressions) == 3
        and call.expressions[0] is column
    )


def _filters(call: exp.Expr) -> bool:
    """Whether a call is in a WHERE, HAVING, QUALIFY or ON, and so decides which rows there are."""
    nearest = call.find_ancestor(exp.Where, exp.Having, exp.Qualify, exp.Join, exp.Select)
    return nearest is not None and not isinstance(nearest, exp.Select)


def _asks_clock(condition: exp.Expr, select: exp.Select) -> bool:
    """Whether a condition reads the clock outside subqueries; those are examined as SELECTs of their own."""
    return any(clock_call(node) and node.parent_select is select for node in condition.find_all(exp.Func))


def _tables(tree: exp.Query, query: Query, live: Sequence[LiveRows]) -> tuple[str, ...]:
    named = {table.name.casefold() for table in tree.find_all(exp.Table)}
    return (*(name for name in query.tables if name.casefold() in named), *(each.id for each in live))


def _extreme(function: str, moments: list[str]) -> str | None:
    if len(moments) < 2:
        return f"({moments[0]})" if moments else None
    return f"{function}({', '.join(moments)})"


def _head(column: exp.Column, alias: str) -> str:
    """The column's own name, without the relation before it and struct fields after it."""
    names = [part.name for part in column.parts]
    qualified = len(names) > 1 and names[0].casefold() == alias.casefold()
    return str(names[1] if qualified else names[0])


def _apart(condition: exp.Expr) -> list[exp.Expr]:
    """BETWEEN split into its two comparisons: the clock may be in only one of them."""
    inner = condition
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if not isinstance(inner, exp.Between) or inner.args.get("symmetric") or inner.find(exp.Query):
        return [condition]
    ends = ((exp.GTE, "low"), (exp.LTE, "high"))
    return [kind(this=inner.this.copy(), expression=inner.args[end].copy()) for kind, end in ends]


def _refused(query: Query, condition: exp.Expr, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"the filter {condition.sql(dialect=SPARK)} cannot be maintained as the clock advances",
        detail=why,
        hint=_HINT,
        location=query.location,
    )
