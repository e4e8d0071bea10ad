"""Allowlist of query syntax, and rewrites to what Spark understands.

sqlglot reads the syntax of thirty dialects; whatever is not known here is refused rather than passed on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import SqlError, SqlSyntaxError, UnsafeError, UnsupportedError
from velostream.sql.bind.sizes import refuse_size
from velostream.sql.functions import UNIT_FIRST, check_call
from velostream.sql.names.spelling import needs_quotes
from velostream.sql.parse.dialect import EMIT, WINDOW, WITH, WITHIN, Clause
from velostream.sql.windows.clauses import interval_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from velostream.location import Location
    from velostream.sql.bind.context import Context


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ALLOWED = _set_of(
    """
    Select From Join Where Group Having Order Ordered Limit Offset With CTE Subquery Union Except
    Intersect Table TableAlias Identifier Column Star Alias Aliases Literal Null Boolean Paren Tuple
    Values Lateral And Or Xor Not Neg BitwiseNot Add Sub Mul Div IntDiv Mod EQ NEQ NullSafeEQ
    NullSafeNEQ GT GTE LT LTE Is In Between Like ILike RegexpLike Escape DPipe BitwiseAnd BitwiseOr
    BitwiseXor BitwiseLeftShift BitwiseRightShift Dot Bracket Case If Cast TryCast DataType
    DataTypeParam ColumnDef Interval IntervalSpan Var Kwarg PropertyEQ Anonymous Count Sum Avg Min Max
    Coalesce Transform Extract Overlay StrPosition Substring Trim CurrentDate CurrentTimestamp
    CurrentUser SessionUser Window WindowSpec Distinct Filter WithinGroup IgnoreNulls RespectNulls
    Lambda Placeholder Exists Any All TableSample Pivot PivotAlias PivotAny UnpivotColumns Qualify Hint
    JoinHint Cube Rollup GroupingSets HexString RawString National Collate Sort Cluster Distribute
    Clause Fetch LimitOptions
    """
)
_FORBIDDEN_ARGS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Select: (
        "into",
        "kind",
        "match",
        "prewhere",
        "connect",
        "exclude",
        "operation_modifiers",
        "settings",
        "format",
    ),
    exp.Table: (
        "version",
        "when",
        "changes",
        "only",
        "partition",
        "rows_from",
        "ordinality",
        "indexed",
        "hints",
    ),
    exp.Distinct: ("on",),
    exp.TableSample: ("method",),
    exp.Join: ("match_condition", "directed"),
}
_UNIT_INSIDE = re.compile(r"\d\s+[A-Za-z]{3,}")
_NO_PARENTHESES: dict[type[exp.Expr], str] = {
    exp.CurrentDate: "CURRENT_DATE",
    exp.CurrentTimestamp: "CURRENT_TIMESTAMP",
    exp.CurrentUser: "CURRENT_USER",
    exp.SessionUser: "SESSION_USER",
}
_RELATIONS = (exp.Table, exp.Subquery, exp.Lateral, exp.Values)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)


def check(tree: exp.Expr, context: Context) -> None:
    """Report every node, clause and function that is not allowed in a query; record the UDFs used."""
    for node in tree.walk(prune=lambda node: type(node).__name__ not in _ALLOWED):
        try:
            _check_node(node, context)
        except SqlError as error:
            context.report(error, node)


def _check_node(node: exp.Expr, context: Context) -> None:
    name = type(node).__name__
    if name == "QueryTransform":
        raise UnsafeError("TRANSFORM … USING is not allowed", detail="it runs a program on the server")
    if name not in _ALLOWED:
        raise SqlSyntaxError(f"{_words(name)} is not part of the language")
    for key in _FORBIDDEN_ARGS.get(type(node), ()):
        if node.args.get(key):
            raise SqlSyntaxError(f"{_words(key)} is not part of the language")
    within = node.args.get(WITHIN)
    if within is not None:
        _check_within(within)
    wrong = _shape_error(node)
    if wrong is not None:
        raise SqlSyntaxError(wrong)
    if isinstance(node, exp.Lateral):
        _check_lateral(node)
    if isinstance(node, exp.Interval) and not isinstance(node.parent, exp.DataType):
        _check_interval(node)
    if isinstance(node, exp.Anonymous) and not isinstance(node.parent, exp.Table | exp.Hint):
        _check_call(node, context)


def _shape_error(node: exp.Expr) -> str | None:
    """The error of a node whose parts sqlglot accepts more freely than Spark; None when it is right."""
    if isinstance(node, exp.Select) and not node.expressions:
        return "SELECT needs at least one column"
    if isinstance(node, exp.From | exp.Join) and not isinstance(node.this, _RELATIONS):
        return "expected a relation: a URI, a name, a function or a subquery in parentheses"
    if isinstance(node, exp.Limit | exp.Offset) and node.find(exp.Column) is not None:
        return f"{node.key.upper()} takes a number"
    if isinstance(node, exp.DataTypeParam) and not isinstance(node.this, exp.Literal):
        return "the size of a type is a number"
    if isinstance(node, exp.Any | exp.All) and isinstance(node.this, exp.Query):
        return f"{node.key.upper()} (SELECT …) must be to the right of a comparison"
    return None


def _check_lateral(node: exp.Lateral) -> None:
    loose = node.arg_key == "laterals" and not node.args.get("view")
    if loose or not isinstance(node.this, exp.Func | exp.Subquery):
        raise SqlSyntaxError(
            "LATERAL must be before VIEW, or after a comma or JOIN before a subquery or function"
        )


def _check_interval(node: exp.Interval) -> None:
    value = node.this.this if isinstance(node.this, exp.Neg) else node.this
    written = isinstance(value, exp.Literal)
    if not written or (node.unit is None and not _UNIT_INSIDE.search(value.name)):
        raise SqlSyntaxError("INTERVAL takes a number and a unit", hint="write INTERVAL '5' MINUTE")


def _check_within(within: exp.Expr) -> None:
    try:
        interval_duration(within)
    except ValueError as exc:
        raise SqlSyntaxError(f"WITHIN: {exc}") from exc


def check_window_expression(node: exp.Expr, context: Context) -> None:
    """The same check for PARTITION BY of a WINDOW, which may have no subquery either."""
    check(node, context)
    if node.find(exp.Query, exp.Table) is not None:
        context.report(SqlSyntaxError("PARTITION BY of a WINDOW cannot hold a subquery"), node)


def _check_call(node: exp.Anonymous, context: Context) -> None:
    given = node.expressions
    if len(given) == 1 and isinstance(given[0], exp.Distinct):
        given = given[0].expressions
    counted = None if any(argument.find(exp.Star) for argument in given) else len(given)
    function = check_call(node.name, counted, context.udfs)
    if function is None:
        context.used.add(next(udf for udf in context.udfs if udf.lower() == node.name.lower()))
    elif function.window_only and not isinstance(_unwrapped(node), exp.Window):
        raise SqlSyntaxError(f'function "{node.name}" needs OVER (…)')
    else:
        refuse_size(node)


def _unwrapped(node: exp.Expr) -> exp.Expr | None:
    parent = node.parent
    while isinstance(parent, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        parent = parent.parent
    return parent


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").strip().upper()


def rewrite(tree: exp.Expr) -> exp.Expr:
    """Rewrite to what Spark understands: units as words, ANY and ALL as IN and EXISTS."""
    holder = exp.Paren(this=tree)
    for node in list(holder.walk()):
        plainer = _plainer(node)
        if plainer is not None:
            node.replace(plainer)
            continue
        if isinstance(node, exp.Anonymous) and node.name.lower() in UNIT_FIRST and len(node.expressions) == 3:
            _unit(node)
        elif isinstance(node, _COMPARISONS) and isinstance(node.expression, exp.Any | exp.All):
            _quantified(node, node.expression)
    return holder.this  # type: ignore[no-any-return]


def _plainer(node: exp.Expr) -> exp.Expr | None:
    """The node in the form that parsing the generated text gives."""
    if isinstance(node, exp.TryCast) and not node.args.get("safe"):
        return exp.Cast(this=node.this, to=node.args["to"])
    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
        return exp.Cast(this=node.this, to=node.args["to"]) if len(node.args) > 2 else None
    if isinstance(node, exp.Concat) and all(isinstance(part, exp.Literal) for part in node.expressions):
        return exp.Literal.string("".join(part.name for part in node.expressions))  # 'a' 'b' is one text
    if isinstance(node, exp.RawString):
        return exp.Literal.string(node.name)
    if type(node) in _NO_PARENTHESES:
        return _call(_NO_PARENTHESES[type(node)], node, [])
    if isinstance(node, exp.Substring):
        arguments = [node.this, node.args.get("start"), node.args.get("length")]
        return _call("SUBSTRING", node, arguments)
    if isinstance(node, exp.Trim) and node.expression is None:
        sides = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}
        return _call(sides.get(node.text("position").upper(), "TRIM"), node, [node.this])
    if isinstance(node, exp.StrPosition):
        return _call("LOCATE", node, [node.args.get("substr"), node.this, node.args.get("position")])
    return None


def _call(name: str, node: exp.Expr, arguments: list[exp.Expr | None]) -> exp.Anonymous:
    call = exp.Anonymous(this=name, expressions=[argument for argument in arguments if argument is not None])
    call.meta.update(node.meta)
    return call


def quote_names(tree: exp.Expr) -> None:
    """Quote exactly the names that need it, so that equal names are equal nodes."""
    for identifier in tree.find_all(exp.Identifier):
        identifier.set("quoted", needs_quotes(identifier.name))


def _unit(node: exp.Anonymous) -> None:
    unit = node.expressions[0]
    if (isinstance(unit, exp.Column) and not unit.table) or (
        isinstance(unit, exp.Literal) and unit.is_string
    ):
        unit.replace(exp.Var(this=unit.name.upper()))


def _quantified(node: exp.Binary, quantifier: exp.Expr) -> None:
    query = quantifier.this
    query = query.this if isinstance(query, exp.Subquery) else query
    if not isinstance(query, exp.Query):
        return
    left = exp.Paren(this=node.this) if isinstance(node.this, exp.Binary | exp.Not) else node.this
    every = isinstance(quantifier, exp.All)
    if isinstance(node, exp.EQ) and not every:
        node.replace(exp.Paren(this=exp.In(this=left, query=exp.Subquery(this=query))))
        return
    if isinstance(node, exp.NEQ) and every:
        node.replace(exp.Paren(this=exp.Not(this=exp.In(this=left, query=exp.Subquery(this=query)))))
        return
    value = exp.TableAlias(this=exp.to_identifier("__any"), columns=[exp.to_identifier("__value")])
    condition: exp.Expr = type(node)(this=left.copy(), expression=exp.column("__value", table="__any"))
    if every:
        condition = exp.Not(
            this=exp.Paren(this=exp.NullSafeEQ(this=exp.Paren(this=condition), expression=exp.true()))
        )
    found = exp.Exists(this=exp.select("1").from_(exp.Subquery(this=query, alias=value)).where(condition))
    node.replace(exp.Paren(this=exp.Not(this=found)) if every else found)


def leftover_clauses(tree: exp.Expr, context: Context) -> None:
    """Report our clauses in places where they are not allowed: in a subquery or CTE."""
    for node in tree.walk():
        for key, words in ((EMIT, "EMIT"), (WINDOW, "WINDOW"), (WITH, "WITH (…)")):
            clause = node.args.get(key)
            if isinstance(clause, Clause) and not (key == WITH and isinstance(node, exp.Table)):
                node.args.pop(key)
                context.report(
                    UnsupportedError(
                        f"{words} is not allowed in a subquery",
                        hint="make the inner query a table or stream of its own",
                        location=clause.value.location,
                    )
                )


def warn_of_quotes(tree: exp.Expr, columns: Iterable[str], context: Context) -> None:
    """Warn of texts that look like columns."""
    context.warnings += quoted_columns(tree, columns, context.place)


def quoted_columns(
    tree: exp.Expr, columns: Iterable[str], place_of: Callable[[exp.Expr], Location | None]
) -> list[str]:
    """Warnings of texts in double quotes that have the name of a column.

    In Spark's SQL "user_id" is a text; in PostgreSQL's it is a column, which is often meant.
    """
    named = {name.lower(): name for name in columns}
    found = []
    for text in tree.find_all(exp.Literal):
        column = named.get(text.name.lower()) if text.is_string and "anchored" in text.meta else None
        place = place_of(text) if column is not None else None
        if place is not None and place.text.startswith('"'):
            found.append(
                f"{place}: {place.text} in double quotes is a text, not the column {column}; "
                f"write `{column}`, or without quotes"
            )
    return found
