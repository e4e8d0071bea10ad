"""What a query needs of one of its sources: comparisons with constants, which a database can apply itself."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.connectors.narrowing import Comparison, Narrowing
from velostream.plan.query.select_names import conjuncts

if TYPE_CHECKING:
    from velostream.connectors.narrowing import Value
    from velostream.model.statements import Query

_OPERATORS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="),
    exp.NEQ: ("<>", "<>"),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
"""Each comparison, and what it is with its sides exchanged."""


def narrowing(query: Query, source: str, columns: frozenset[str] | None = None) -> Narrowing:
    """The part of a source that a query reads, of which it uses these columns.

    Conditions are taken from the WHERE of a query that is one SELECT over this source alone: rows that fail
    them are in no result.
    """
    tree = query.tree
    alone = (
        isinstance(tree, exp.Select)
        and len(query.sources) == 1
        and not query.tables
        and not tree.args.get("joins")
        and not tree.args.get("with_")
        and isinstance(tree.args["from_"].this, exp.Table)
        and tree.args["from_"].this.name == source
    )
    if not alone:
        return Narrowing(columns)
    where = tree.args.get("where")
    given = conjuncts(where.this if where is not None else None)
    found = [_comparison(condition) for condition in given]
    taken = tuple(each for each in found if each is not None)
    return Narrowing(columns, taken, query.enough if len(taken) == len(given) else None)


def _comparison(condition: exp.Expr) -> Comparison | None:
    """A condition as a comparison of a plain column with constants; None for every other."""
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if isinstance(condition, exp.Not) and isinstance(condition.this, exp.Is):
        return _null(condition.this, "IS NOT NULL")
    if isinstance(condition, exp.Is):
        return _null(condition, "IS NULL")
    if isinstance(condition, exp.In) and not condition.args.get("query") and not condition.args.get("unnest"):
        column, values = _column(condition.this), [_value(each) for each in condition.expressions]
        if column is None or not values or None in values:
            return None
        return Comparison(column, "IN", tuple(each for each in values if each is not None))
    names = _OPERATORS.get(type(condition))
    if names is None:
        return None
    sides = condition.this, condition.expression
    for operator, (left, right) in zip(names, (sides, sides[::-1]), strict=True):
        column, value = _column(left), _value(right)
        if column is not None and value is not None:
            return Comparison(column, operator, (value,))
    return None


def _null(condition: exp.Is, operator: str) -> Comparison | None:
    column = _column(condition.this)
    return Comparison(column, operator) if column and isinstance(condition.expression, exp.Null) else None


def _column(node: exp.Expr) -> str | None:
    """The name of a plain column of the source; system columns are ours."""
    if not isinstance(node, exp.Column) or len(node.parts) > 2 or node.name.startswith("_"):
        return None
    return node.name


def _value(node: exp.Expr) -> Value | None:
    """A constant; None for what is none, or no constant of a type that everybody compares the same."""
    if isinstance(node, exp.Neg):
        inner = _value(node.this)
        return -inner if isinstance(inner, int | Decimal) and not isinstance(inner, bool) else None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        if node.is_string:
            return str(node.this)
        text = str(node.this)
        return int(text) if text.isdigit() else Decimal(text) if text.replace(".", "", 1).isdigit() else None
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        return _moment(node)
    return None


def _moment(node: exp.Cast) -> date | datetime | None:
    try:
        if node.to.this is exp.DataType.Type.DATE:
            return date.fromisoformat(node.this.this)
        if node.to.this in (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ):
            found = datetime.fromisoformat(node.this.this)
            return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    except ValueError:
        pass
    return None
