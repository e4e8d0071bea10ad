"""Queries with clock filters: they are taken out of the query and applied to the rows of each input.

For a filter such as `ts > now() - INTERVAL 1 HOUR`, Spark computes once per row from when until when the row
passes. The rows that pass now are kept as a table, and the remaining query is maintained over that table
incrementally, like over any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import UnsupportedError
from velostream.plan.groups.plan import NeedsColumns
from velostream.plan.planner import refuse_later_features
from velostream.plan.query.functions import clock_call, volatile_calls
from velostream.plan.query.select_names import conjuncts
from velostream.plan.time.clock_bounds import Bound, NotFollowedError, bounds, has_clock
from velostream.plan.time.kept_rows import Kept, Taking, date_unit
from velostream.sql.names.spelling import relation_told
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from velostream.model.statements import Query

_HINT = (
    "compare a column with the clock, alone or with AND: ts > now() - INTERVAL 1 HOUR; "
    "or keep the filter for a SELECT over the table"
)


def ageing(query: Query, columns: Mapping[str, Sequence[str] | None]) -> Kept | None:
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
    taken = _Filters(query, columns)
    for select in list(tree.find_all(exp.Select)):
        taken.block(select)
    left = next((node for node in tree.find_all(exp.Func) if clock_call(node) and _filters(node)), None)
    if left is not None:
        raise _refused(query, left, "only comparisons of columns with the clock in a WHERE are followed")
    if query.sources:
        taken.sources(tree)
    return Kept(taken.rest(tree), tuple(taken.rows))


class _Filters(Taking):
    """Takes the clock filters out of the SELECTs of one query."""

    def __init__(self, query: Query, columns: Mapping[str, Sequence[str] | None]) -> None:
        super().__init__(query)
        self._query = query
        self._columns = columns

    def block(self, select: exp.Select) -> None:
        """Take the clock filters out of one WHERE, with all other conditions on the same relation."""
        where = select.args.get("where")
        conditions = conjuncts(where.this if where is not None else None)
        if not any(_asks_clock(each, select) for each in conditions):
            return
        conditions = [part for each in conditions for part in _apart(each)]
        by_clock = [each for each in conditions if has_clock(each) and not each.find(exp.Query)]
        relations = _Relations(select, self._columns, self.inputs)
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
            self.add(
                relations.table(alias),
                tuple(bound for _, some in given for bound in some),
                tuple(mine),
                tuple(condition.sql(dialect=SPARK) for condition, _ in given),
            )
        select.set("where", exp.Where(this=exp.and_(*plain, copy=False)) if plain else None)


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
        aliases = {self._alias(column) for column in condition.find_all(exp.Column) if not date_unit(column)}
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
        found = [self._alias(column) for column in condition.find_all(exp.Column) if not date_unit(column)]
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


def _filters(call: exp.Expr) -> bool:
    """Whether a call is in a WHERE, HAVING, QUALIFY or ON, and so decides which rows there are."""
    nearest = call.find_ancestor(exp.Where, exp.Having, exp.Qualify, exp.Join, exp.Select)
    return nearest is not None and not isinstance(nearest, exp.Select)


def _asks_clock(condition: exp.Expr, select: exp.Select) -> bool:
    """Whether a condition reads the clock outside subqueries; those are examined as SELECTs of their own."""
    return any(clock_call(node) and node.parent_select is select for node in condition.find_all(exp.Func))


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
