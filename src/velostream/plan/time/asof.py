"""ASOF JOIN: each row of the left side with the last row of the right side that is not later.

Neither Spark nor the planner of derived tables has it. It is rewritten as a UNION ALL of both sides and, by
key and in the order of time, the last right row so far (OVER), which both can execute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from velostream.errors import UnsupportedError
from velostream.plan.groups.plan import NeedsColumns
from velostream.plan.query.select_names import conjuncts
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from velostream.model.statements import Query

Columns = Mapping[str, str]
"""The columns of a relation and their types, as DDL."""
_FORM = "FROM a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts"


@dataclass(frozen=True)
class Asof:
    """The parts of an ASOF JOIN of two relations."""

    left: exp.Table
    right: exp.Table
    keys: tuple[tuple[exp.Column, exp.Column], ...]
    """Equalities, the left column first."""
    times: tuple[exp.Column, exp.Column]
    """The times that are compared, the left one first."""
    or_equal: bool
    outer: bool


def asof_join(query: Query) -> Asof | None:
    """The ASOF JOIN of a query; None where it has none, UnsupportedError where its form is not executable."""
    tree = query.tree
    joins = [join for join in tree.find_all(exp.Join) if join.method == "ASOF"]
    if not joins:
        return None
    source = tree.args.get("from_") if isinstance(tree, exp.Select) else None
    left, right = source.this if source is not None else None, joins[0].this
    alone = isinstance(tree, exp.Select) and tree.args.get("joins") == joins and len(joins) == 1
    if not alone or not isinstance(left, exp.Table) or not isinstance(right, exp.Table):
        raise _refused(query, "it must be alone in the FROM of the outermost SELECT, between two relations")
    if joins[0].side not in ("", "LEFT") or joins[0].kind not in ("", "OUTER", "INNER"):
        raise _refused(query, "it is ASOF JOIN or ASOF LEFT JOIN")
    sides = left.alias_or_name.casefold(), right.alias_or_name.casefold()
    keys: list[tuple[exp.Column, exp.Column]] = []
    times: list[tuple[exp.Column, exp.Column, bool]] = []
    for condition in conjuncts(joins[0].args.get("on")):
        pair = _columns(condition, sides)
        if pair is not None and isinstance(condition, exp.EQ):
            keys.append(pair)
        elif pair is not None and _earlier(condition, sides):
            times.append((*pair, isinstance(condition, exp.GTE | exp.LTE)))
        else:
            raise _refused(query, f"{condition.sql(dialect=SPARK)} is neither an equality nor the comparison")
    if len(times) != 1 or not keys:
        raise _refused(query, "ON has equalities and one comparison of times")
    time = times[0]
    return Asof(left, right, tuple(keys), (time[0], time[1]), time[2], joins[0].side == "LEFT")


def asof_tables(query: Query, columns: Callable[[], Mapping[str, Columns | None]]) -> Query:
    """The query with its ASOF JOIN of tables rewritten, if any; `columns` returns those of each table."""
    join = asof_join(query)
    if join is None:
        return query
    if query.sources:
        raise UnsupportedError(
            "ASOF JOIN is executed between two streams, or between two tables",
            hint="a stream is joined to a table as it is when a row comes: leave out ASOF",
            location=query.location,
        )
    assert isinstance(query.tree, exp.Select)
    return replace(query, tree=without_asof(query.tree, join, columns()))


def without_asof(
    tree: exp.Select,
    join: Asof,
    columns: Mapping[str, Columns | None],
    hidden: Columns | None = None,
) -> exp.Select:
    """The query with its ASOF JOIN rewritten as a UNION ALL and an OVER.

    `columns` are the columns of each relation; `hidden` are further columns of the left, which `*` leaves
    out.
    """
    aliases = [relation.alias_or_name for relation in (join.left, join.right)]
    visible = [columns.get(relation.name) for relation in (join.left, join.right)]
    if visible[0] is None or visible[1] is None:
        raise NeedsColumns
    left, right = {**visible[0], **(hidden or {})}, visible[1]
    known = {alias.casefold(): list(names) for alias, names in zip(aliases, (left, right), strict=True)}
    inner = _in_order(join, left, right)
    names = _Names(
        aliases, known, {a.casefold(): list(v or ()) for a, v in zip(aliases, visible, strict=True)}
    )
    rest = tree.copy()
    rest.set("expressions", [each for item in tree.selects for each in names.item(item)])
    for clause in ("where", "group", "having", "order"):
        part = rest.args.get(clause)
        if part is not None:
            rest.set(clause, part.transform(names.swapped))
    rest.set("joins", None)
    rest.set("from_", exp.From(this=exp.Subquery(this=inner, alias=exp.TableAlias(this="__asof"))))
    rest = rest.where("__side = 1", copy=False)
    return rest if join.outer else rest.where("__right IS NOT NULL", copy=False)


def _in_order(join: Asof, left: Columns, right: Columns) -> exp.Expr:
    """The rows of both sides in one relation, each with the last right row up to it."""
    one, other = (f"`{relation.alias_or_name}`" for relation in (join.left, join.right))
    keys = range(len(join.keys))
    ours = [
        *(f"{pair[0].sql(dialect=SPARK)} AS __k{n}" for n, pair in enumerate(join.keys)),
        f"{join.times[0].sql(dialect=SPARK)} AS __at",
        *(f"{one}.`{name}` AS `l_{name}`" for name in left),
        f"CAST(NULL AS STRUCT<{', '.join(f'`{name}`: {kind}' for name, kind in right.items())}>) AS __right",
    ]
    fields = ", ".join(f"'{name}', {other}.`{name}`" for name in right)
    theirs = [
        *(f"{pair[1].sql(dialect=SPARK)} AS __k{n}" for n, pair in enumerate(join.keys)),
        f"{join.times[1].sql(dialect=SPARK)} AS __at",
        *(f"CAST(NULL AS {kind}) AS `l_{name}`" for name, kind in left.items()),
        f"named_struct({fields}) AS __right",
    ]
    # At equal times, `>=` sees the right row (it sorts first), `>` does not (it sorts last).
    first = 0 if join.or_equal else 2
    union = (
        f"SELECT 1 AS __side, 1 AS __turn, {', '.join(ours)} FROM {_relation(join.left)} "
        f"UNION ALL SELECT 0 AS __side, {first} AS __turn, {', '.join(theirs)} FROM {_relation(join.right)}"
    )
    present = " AND ".join(f"__k{n} IS NOT NULL" for n in keys)
    by = ", ".join(f"__k{n}" for n in keys)
    last = (
        f"last_value(__right) IGNORE NULLS OVER (PARTITION BY {by} ORDER BY __at, __turn "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    )
    items = [
        "__side",
        by,
        *(f"`l_{name}`" for name in left),
        f"CASE WHEN {present} THEN {last} END AS __right",
    ]
    return parse_one(f"SELECT {', '.join(items)} FROM ({union}) AS __both", dialect=SPARK)


class _Names:
    """Rewrites column names of the two relations to columns of the relation that replaces them."""

    def __init__(
        self, aliases: Sequence[str], known: Mapping[str, Sequence[str]], visible: Mapping[str, Sequence[str]]
    ) -> None:
        self._left, self._right = (alias.casefold() for alias in aliases)
        self._known = known
        self._visible = visible

    def item(self, item: exp.Expr) -> list[exp.Expr]:
        """An item of the SELECT, rewritten; `*` becomes several items."""
        star = item if isinstance(item, exp.Star) else item.this if isinstance(item, exp.Column) else None
        if isinstance(star, exp.Star):
            wanted = item.table.casefold() if isinstance(item, exp.Column) else ""
            return [
                exp.alias_(self._column(alias, name), name, quoted=True)
                for alias in (self._left, self._right)
                if wanted in ("", alias)
                for name in self._visible[alias]
            ]
        swapped = item.copy().transform(self.swapped)
        named = isinstance(item, exp.Column) and not isinstance(swapped, exp.Alias)
        return [exp.alias_(swapped, item.name, quoted=True) if named else swapped]

    def swapped(self, node: exp.Expr) -> exp.Expr:
        """A column reference, rewritten; any other node is returned unchanged."""
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return node
        first = node.parts[0].name.casefold()
        if len(node.parts) > 1 and first in self._known:
            found = self._column(first, node.parts[1].name)
            return (
                exp.Dot.build([found, *(part.copy() for part in node.parts[2:])]) if node.parts[2:] else found
            )
        owners = [a for a, names in self._known.items() if any(first == n.casefold() for n in names)]
        return self._column(owners[0], node.parts[0].name) if len(owners) == 1 else node

    def _column(self, alias: str, name: str) -> exp.Expr:
        written = next((n for n in self._known[alias] if n.casefold() == name.casefold()), name)
        if alias == self._left:
            return exp.column(f"l_{written}", quoted=True)
        return exp.Dot(
            this=exp.column("__right", quoted=True), expression=exp.to_identifier(written, quoted=True)
        )


def _relation(table: exp.Table) -> str:
    return f"{table.copy().sql(dialect=SPARK)}"


def _columns(condition: exp.Expr, sides: tuple[str, str]) -> tuple[exp.Column, exp.Column] | None:
    """The two columns that a condition compares, the left relation's first; None for any other condition."""
    if not isinstance(condition, exp.Binary):
        return None
    found = {
        part.table.casefold(): part
        for part in (condition.left, condition.right)
        if isinstance(part, exp.Column)
    }
    return (found[sides[0]], found[sides[1]]) if set(found) == set(sides) else None


def _earlier(condition: exp.Expr, sides: tuple[str, str]) -> bool:
    """Whether a comparison says that the right time is not later than the left one."""
    assert isinstance(condition, exp.Binary)
    left_first = (
        condition.left.table.casefold() == sides[0] if isinstance(condition.left, exp.Column) else False
    )
    return isinstance(condition, (exp.GT, exp.GTE) if left_first else (exp.LT, exp.LTE))


def _refused(query: Query, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"this ASOF JOIN is not executed: {why}",
        hint=f"write {_FORM}; make tables of what is joined before and after",
        location=query.location,
    )
