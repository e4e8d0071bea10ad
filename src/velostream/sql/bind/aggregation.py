"""Validity of grouping: where aggregates and ungrouped columns are allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import SqlSyntaxError, did_you_mean
from velostream.model.statements import WindowKind, WindowSpec
from velostream.sql.functions import GROUP_WINDOWS, TIME_WINDOWS, WINDOW_BOUNDS, is_aggregate
from velostream.sql.names.relation_columns import WINDOW_COLUMNS
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from velostream.sql.bind.context import Context


def is_aggregate_call(node: exp.Expr) -> bool:
    """Whether a node calls an aggregate function without OVER."""
    if isinstance(node, exp.Anonymous):
        aggregate = is_aggregate(node.name)
    else:
        aggregate = isinstance(node, exp.AggFunc)
    return aggregate and not _over(node)


def _over(node: exp.Expr) -> bool:
    parent, child = node.parent, node
    while (
        isinstance(parent, exp.IgnoreNulls | exp.RespectNulls | exp.Filter | exp.WithinGroup)
        and parent.this is child
    ):
        parent, child = parent.parent, parent  # type: ignore[assignment]
    return isinstance(parent, exp.Window) and parent.this is child


def aggregates(node: exp.Expr) -> Iterable[exp.Expr]:
    """The aggregate calls of one SELECT's expression, without those of subqueries."""
    if isinstance(node, exp.Query):
        return
    if is_aggregate_call(node):
        yield node
        return
    for child in node.iter_expressions():
        yield from aggregates(child)


def has_aggregates(select: exp.Select) -> bool:
    """Whether the SELECT returns one row per group."""
    if select.args.get("group") is not None:
        return True
    parts = [*select.expressions, select.args.get("having"), select.args.get("order")]
    return any(True for part in parts if part is not None for _ in aggregates(part))


def check(
    tree: exp.Expr, window: WindowSpec | None, context: Context, *, unknown: Sequence[str] = ()
) -> None:
    """Report misplaced aggregates and ungrouped columns of every SELECT in the tree.

    `unknown`: relations whose columns are not known, so that an ungrouped one may not exist at all.
    """
    top = tree
    while isinstance(top, exp.Subquery):
        top = top.this
    for select in tree.find_all(exp.Select):
        _check_where(select, context)
        _check_grouping(select, window if select is top else None, context, unknown)
    if window is not None:
        _check_window(top, window, context)


def _check_window(top: exp.Expr, window: WindowSpec, context: Context) -> None:
    aggregated = isinstance(top, exp.Select) and has_aggregates(top)
    over = any(True for _ in top.find_all(exp.Window))
    if not aggregated and not (window.kind is WindowKind.ROWS and over):
        context.report(
            SqlSyntaxError(
                "WINDOW needs an aggregate such as COUNT or SUM in the SELECT",
                hint="aggregate the rows of each window, or leave the WINDOW out",
                location=window.location,
            )
        )


def _check_where(select: exp.Select, context: Context) -> None:
    where = select.args.get("where")
    for call in aggregates(where) if where is not None else ():
        context.report(SqlSyntaxError("an aggregate is not allowed in WHERE", hint="use HAVING"), call)


def _check_grouping(
    select: exp.Select, window: WindowSpec | None, context: Context, unknown: Sequence[str]
) -> None:
    if not has_aggregates(select):
        return
    grouped = _grouping(select)
    if grouped is None:
        return
    keys = [*grouped, *(window.partition_by if window else ())]
    aliases: set[str] = set()
    for item in select.expressions:
        for column in _ungrouped(item, keys):
            plain = not column.table and column.name.lower()
            if plain in aliases or (window and plain in WINDOW_COLUMNS) or isinstance(column.this, exp.Star):
                continue
            if context.reported_at(column):
                # It is unknown, which says more.
                continue
            names = [key.name for key in keys if isinstance(key, exp.Column)]
            context.report(_ungrouped_error(column, names, unknown), column)
            context.guessed |= bool(unknown)
        if isinstance(item, exp.Star) and not keys:
            context.report(SqlSyntaxError("* cannot stand beside an aggregate", hint="name the columns"))
        if isinstance(item, exp.Alias):  # Spark lets later expressions use it
            aliases.add(item.alias.lower())


def _ungrouped_error(column: exp.Column, keys: Sequence[str], unknown: Sequence[str]) -> SqlSyntaxError:
    name = column.sql(SPARK)
    hint = f"GROUP BY {name}, or take max({name})"
    if not unknown:
        return SqlSyntaxError(f'column "{name}" must be grouped or inside an aggregate', hint=hint)
    near = did_you_mean(column.name, keys)
    return SqlSyntaxError(
        f'column "{name}" is neither grouped nor inside an aggregate',
        detail=f"only the source knows whether {' or '.join(unknown)} has it: velo check --connect asks",
        hint=f"{near} If not, {hint}" if near else hint,
    )


def _grouping(select: exp.Select) -> list[exp.Expr] | None:
    """The group expressions, aliases and positions resolved; None for GROUP BY ALL, which allows any."""
    group = select.args.get("group")
    if group is None:
        return []
    if group.args.get("all"):
        return None
    found: list[exp.Expr] = []
    parts = [*group.expressions]
    for key in ("cube", "rollup", "grouping_sets"):
        parts += group.args.get(key) or ()
    items = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
    for part in _leaves(parts):
        found.append(part)
        if isinstance(part, exp.Column) and not part.table and part.name.lower() in items:
            found.append(items[part.name.lower()])
        elif (
            isinstance(part, exp.Literal)
            and part.name.isdigit()
            and 0 < int(part.name) <= len(select.expressions)
        ):
            item = select.expressions[int(part.name) - 1]
            found.append(item.this if isinstance(item, exp.Alias) else item)
    return found


def _leaves(parts: Iterable[exp.Expr]) -> Iterable[exp.Expr]:
    """The single group expressions, out of ROLLUP (…), CUBE (…), GROUPING SETS (…) and their tuples."""
    for part in parts:
        yield part
        if isinstance(part, exp.Tuple | exp.Paren | exp.Cube | exp.Rollup | exp.GroupingSets):
            yield from _leaves(part.iter_expressions())


def _ungrouped(node: exp.Expr, keys: list[exp.Expr]) -> Iterable[exp.Column]:
    if isinstance(node, exp.Query) or _aggregated(node) or any(_same(node, key) for key in keys):
        return
    if isinstance(node, exp.Anonymous) and node.name.lower() in WINDOW_BOUNDS | GROUP_WINDOWS | {
        "grouping",
        "grouping_id",
    }:
        return
    if isinstance(node, exp.Lambda):
        parameters = {parameter.name for parameter in node.expressions}
        yield from (column for column in _ungrouped(node.this, keys) if column.name not in parameters)
        return
    if isinstance(node, exp.Column):
        # `window.start` belongs to a grouped window(…), `s.field` to a grouped struct.
        root = node.parts[0].name.lower()
        if (
            any(isinstance(key, exp.Column) and key.name.lower() == root for key in keys)
            or root in TIME_WINDOWS
        ):
            return
        yield node
        return
    for child in node.iter_expressions():
        yield from _ungrouped(child, keys)


def _aggregated(node: exp.Expr) -> bool:
    """Whether a node is an aggregate, possibly within FILTER, WITHIN GROUP or IGNORE NULLS."""
    while isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        node = node.this
    return is_aggregate_call(node)


def _same(node: exp.Expr, key: exp.Expr) -> bool:
    if isinstance(node, exp.Column) and isinstance(key, exp.Column):
        if node.name.lower() != key.name.lower():
            return False
        return not node.table or not key.table or node.table.lower() == key.table.lower()
    return type(node) is type(key) and _bare(node) == _bare(key)


def _bare(node: exp.Expr) -> str:
    """The text without qualifiers: `f(t.a)` and `f(a)` usually mean the same; Spark reports when not."""
    copy = node.copy()
    for column in copy.find_all(exp.Column):
        column.set("table", None)
    return copy.sql(SPARK).lower()
