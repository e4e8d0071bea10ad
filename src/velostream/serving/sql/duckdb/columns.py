"""The columns of a SELECT list: their names, and how other clauses refer to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.serving.sql.duckdb.expressions import called
from velostream.serving.sql.duckdb.functions import AGGREGATES
from velostream.serving.sql.duckdb.types import NeedsSpark, Typed
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from velostream.serving.sql.duckdb.scopes import OutputColumn


@dataclass(frozen=True)
class Item:
    """One item: its name, and either the expression that the user wrote or a column that `*` stands for."""

    name: str
    written: exp.Expr | None = None
    column: Typed | None = None


def chosen(items: list[Item], ordinal: str) -> exp.Expr:
    """The expression that GROUP BY 1 means."""
    place = int(ordinal) - 1 if ordinal.isdigit() else -1
    node = items[place].written if 0 <= place < len(items) else None
    if node is None:
        raise NeedsSpark(f"GROUP BY {ordinal}")
    return node


def output_place(item: exp.Expr, columns: list[OutputColumn], sources: list[exp.Expr | None]) -> int | None:
    """Which output an item of ORDER BY names, by position, by name, or by being the same expression."""
    target = item.this
    if isinstance(target, exp.Literal) and not target.is_string and target.this.isdigit():
        place = int(target.this) - 1
        if not 0 <= place < len(columns):
            raise NeedsSpark(f"ORDER BY {target.this}")
        return place
    if isinstance(target, exp.Column) and not target.table:
        named = [
            place for place, column in enumerate(columns) if column.name.casefold() == target.name.casefold()
        ]
        if len(named) == 1:
            return named[0]
    for place, source in enumerate(sources):
        if source is not None and source == target:
            return place
    return None


def default_name(node: exp.Expr) -> str:
    """The name that Spark gives to a column without alias, for the forms that are common."""
    if isinstance(node, exp.Column):
        return node.name
    if isinstance(node, exp.Literal):
        return str(node.this)
    if isinstance(node, exp.Func) and (called(node)[0] in AGGREGATES or isinstance(node, exp.Anonymous)):
        name, arguments = called(node)
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = arguments[0].expressions
        inner = ", ".join("1" if isinstance(each, exp.Star) else default_name(each) for each in arguments)
        return f"{name}({'DISTINCT ' if distinct else ''}{inner})"
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod):
        sign = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}[node.key]
        return f"({default_name(node.left)} {sign} {default_name(node.right)})"
    written = node.copy()
    for column in written.find_all(exp.Column):
        column.set("table", None)
    return written.sql(dialect=SPARK)
