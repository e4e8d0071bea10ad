"""From a Spark expression to one of DuckDB, node by node."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa
from sqlglot import exp

from velostream.errors import TypeMismatchError
from velostream.serving.sql.duckdb import arithmetic, functions
from velostream.serving.sql.duckdb.rules import Call
from velostream.serving.sql.duckdb.scopes import find
from velostream.serving.sql.duckdb.types import (
    BOOLEAN,
    NULL,
    STRING,
    NeedsSpark,
    Typed,
    cast,
    coerce_all,
    quoted,
    require,
    typed_value,
)
from velostream.sql.text.spark_text import SPARK
from velostream.sql.types import arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from velostream.serving.sql.duckdb.rules import Rule
    from velostream.serving.sql.duckdb.scopes import OutputColumn, Scope

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_ARITHMETIC: dict[type[exp.Expr], Callable[[Typed, Typed], Typed]] = {
    exp.Mul: arithmetic.product,
    exp.Div: arithmetic.quotient,
    exp.IntDiv: arithmetic.whole_quotient,
    exp.Mod: arithmetic.remainder,
    exp.DPipe: lambda left, right: functions.concatenation(Call((left, right))),
}


class Queries(Protocol):
    """What an expression needs from the query around it, beside its names."""

    def subquery(self, tree: exp.Expr, scope: Scope) -> tuple[str, list[OutputColumn]]:
        """A query inside of the expression, which sees the names around it."""

    def parameter(self, node: exp.Placeholder) -> tuple[Any, str]:
        """The value of a parameter, and the name under which it is bound."""


class Expressions:
    """Translates the expressions that see the names of one scope."""

    def __init__(self, queries: Queries, scope: Scope) -> None:
        self._queries = queries
        self._scope = scope

    def translate(self, node: exp.Expr) -> Typed:
        """The expression for DuckDB with Spark's type; raises NeedsSpark."""
        for kind, rule in self._RULES:
            if isinstance(node, kind):
                _only_known(node)
                return self._grouped(rule(self, node))
        if isinstance(node, exp.Func):
            return self._grouped(self._function(node))
        raise NeedsSpark(node.key.upper())

    def condition(self, node: exp.Expr, what: str) -> str:
        """A boolean expression."""
        return require(self.translate(node), BOOLEAN, what)

    def _grouped(self, value: Typed) -> Typed:
        return without_negative_zero(value) if value.sql in self._scope.zero_keys else value

    # --- leaves -------------------------------------------------------------------------------------

    def _column(self, node: exp.Column) -> Typed:
        """A column, or an alias that stands for an expression."""
        if node.args.get("db") or node.args.get("catalog"):
            raise NeedsSpark(node.sql())
        name, qualifier = node.name.casefold(), node.table.casefold() or None
        scope: Scope | None = self._scope
        while scope is not None:
            found = find(scope, name, qualifier)
            if found is not None:
                return found
            aliased = scope.aliased(name) if qualifier is None and scope is self._scope else []
            if len(aliased) == 1:
                return self._aliased(aliased[0], name)
            scope = scope.outer
        raise NeedsSpark(f'column "{node.sql()}"')

    def _aliased(self, node: exp.Expr, name: str) -> Typed:
        before = self._scope.aliases
        self._scope.aliases = [(alias, item) for alias, item in before if alias.casefold() != name]
        try:
            return self.translate(node)
        finally:
            self._scope.aliases = before

    def _literal(self, node: exp.Literal) -> Typed:
        text = node.this
        if node.is_string:
            return typed_value(text, quoted(text))
        value = int(text) if text.isdigit() else float(text) if "e" in text.lower() else Decimal(text)
        return typed_value(value, text)

    def _boolean(self, node: exp.Boolean) -> Typed:
        return Typed("TRUE" if node.this else "FALSE", BOOLEAN)

    def _null(self, _: exp.Null) -> Typed:
        return Typed("NULL", NULL)

    def _parameter(self, node: exp.Placeholder) -> Typed:
        value, name = self._queries.parameter(node)
        return typed_value(value, f"${name}", bound=True)

    def _paren(self, node: exp.Paren) -> Typed:
        inner = self.translate(node.this)
        return replace(inner, sql=f"({inner.sql})")

    # --- operators ----------------------------------------------------------------------------------

    def _comparison(self, node: exp.Binary) -> Typed:
        return arithmetic.compared(
            self.translate(node.left), _COMPARISONS[type(node)], self.translate(node.right)
        )

    def _arithmetic(self, node: exp.Binary) -> Typed:
        return _ARITHMETIC[type(node)](self.translate(node.left), self.translate(node.right))

    def _added(self, node: exp.Add | exp.Sub) -> Typed:
        sign = "+" if isinstance(node, exp.Add) else "-"
        left = self.translate(node.left)
        if isinstance(node.right, exp.Interval):
            return arithmetic.shifted(left, sign, node.right)
        return arithmetic.added(left, sign, self.translate(node.right))

    def _minus(self, node: exp.Neg) -> Typed:
        return arithmetic.negated(self.translate(node.this), written=isinstance(node.this, exp.Literal))

    def _between(self, node: exp.Between) -> Typed:
        value = self.translate(node.this)
        low = arithmetic.compared(value, ">=", self.translate(node.args["low"]))
        high = arithmetic.compared(value, "<=", self.translate(node.args["high"]))
        return Typed(f"({low.sql} AND {high.sql})", BOOLEAN)

    def _logic(self, node: exp.And | exp.Or) -> Typed:
        left, right = self.condition(node.left, "logic"), self.condition(node.right, "logic")
        return Typed(f"({left} {node.key.upper()} {right})", BOOLEAN)

    def _negation(self, node: exp.Not) -> Typed:
        return Typed(f"(NOT {self.condition(node.this, 'NOT')})", BOOLEAN)

    def _is(self, node: exp.Is) -> Typed:
        value, wanted = self.translate(node.this), node.expression
        if isinstance(wanted, exp.Null):
            return Typed(f"({value.sql} IS NULL)", BOOLEAN)
        if isinstance(wanted, exp.Boolean):
            tested = require(value, BOOLEAN, "IS")
            return Typed(f"({tested} IS NOT DISTINCT FROM {self._boolean(wanted).sql})", BOOLEAN)
        raise NeedsSpark("IS")

    def _in(self, node: exp.In) -> Typed:
        value = self.translate(node.this)
        query = node.args.get("query")
        if query is None:
            return arithmetic.member(value, [self.translate(option) for option in node.expressions])
        if not _null_counts_as_false(node):
            raise NeedsSpark("the value of IN of a query, which is never NULL in Spark")
        sql, columns = self._queries.subquery(query.unnest(), self._scope)
        if [column.type for column in columns] != [value.type]:
            raise NeedsSpark("IN of a query with another type")
        return Typed(f"({value.sql} IN ({sql}))", BOOLEAN)

    def _exists(self, node: exp.Exists) -> Typed:
        sql, _ = self._queries.subquery(node.this.unnest(), self._scope)
        return Typed(f"EXISTS({sql})", BOOLEAN)

    def _subquery(self, node: exp.Subquery | exp.Query) -> Typed:
        around = node.parent_select
        if isinstance(around, exp.Select) and around.args.get("group") and _clause(node) == "expressions":
            raise NeedsSpark("a subquery beside aggregates")
        sql, columns = self._queries.subquery(node.unnest(), self._scope)
        if len(columns) != 1:
            raise NeedsSpark("a scalar subquery of several columns")
        return Typed(f"({sql})", columns[0].type)

    def _like(self, node: exp.Like) -> Typed:
        value, pattern = self.translate(node.this), self.translate(node.expression)
        if not isinstance(pattern.literal, str) or "\\" in pattern.literal:
            raise NeedsSpark("LIKE with a pattern that is not a plain constant")
        tested = f"{require(value, STRING, 'LIKE')} LIKE {pattern.sql}"
        return Typed(f"(NOT ({tested}))" if node.args.get("negate") else f"({tested})", BOOLEAN)

    def _cast(self, node: exp.Cast) -> Typed:
        if node.args.get("safe") or node.args.get("format"):
            raise NeedsSpark("TRY_CAST")
        try:
            kind = arrow_type(node.to)
        except TypeMismatchError as exc:
            raise NeedsSpark(f"CAST AS {node.to.sql(dialect=SPARK)}") from exc
        return arithmetic.converted(self.translate(node.this), kind)

    def _case(self, node: exp.Case) -> Typed:
        conditions = [self._when(node.this, branch.this) for branch in node.args["ifs"]]
        results = [self.translate(branch.args["true"]) for branch in node.args["ifs"]]
        otherwise = node.args.get("default")
        results.append(self.translate(otherwise) if otherwise is not None else Typed("NULL", NULL))
        (*texts, default), kind = coerce_all(results, "CASE")
        branches = [f"WHEN {when} THEN {then}" for when, then in zip(conditions, texts, strict=True)]
        return Typed(f"(CASE {' '.join(branches)} ELSE {default} END)", kind)

    def _when(self, subject: exp.Expr | None, test: exp.Expr) -> str:
        if subject is None:
            return self.condition(test, "WHEN")
        return arithmetic.compared(self.translate(subject), "=", self.translate(test)).sql

    # --- functions ----------------------------------------------------------------------------------

    def _function(self, node: exp.Func) -> Typed:
        name, arguments = called(node)
        if name in functions.AGGREGATES:
            return self._aggregate(node, "")
        rule = functions.SCALAR.get(name)
        if rule is None:
            raise NeedsSpark(f"function {name}")
        return self._called(name, rule, arguments)

    def _aggregate(self, node: exp.Expr, over: str) -> Typed:
        name, arguments = called(node)
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            if arguments[0].args.get("on"):
                raise NeedsSpark("DISTINCT ON")
            arguments = arguments[0].expressions
        if name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            arguments = []
        return self._called(name, functions.AGGREGATES[name], arguments, distinct=distinct, over=over)

    def _called(
        self,
        name: str,
        rule: Rule,
        arguments: list[exp.Expr],
        *,
        distinct: bool = False,
        over: str = "",
    ) -> Typed:
        call = Call(tuple(self.translate(argument) for argument in arguments), distinct, over)
        try:
            return rule(call)
        except NeedsSpark as exc:
            raise NeedsSpark(f"function {name}: {exc.reason}") from exc

    def _filtered(self, node: exp.Filter) -> Typed:
        if called(node.this)[0] not in functions.AGGREGATES:
            raise NeedsSpark("FILTER")
        condition = self.condition(node.expression.this, "FILTER")
        return self._aggregate(node.this, f" FILTER(WHERE {condition})")

    def _window(self, node: exp.Window) -> Typed:
        name = called(node.this)[0] if isinstance(node.this, exp.Func) else ""
        if name not in functions.WINDOW and name not in functions.AGGREGATES:
            raise NeedsSpark(f"{name or node.this.key} OVER")
        parts = []
        if node.args.get("partition_by"):
            keys = [self.translate(part).sql for part in node.args["partition_by"]]
            parts.append(f"PARTITION BY {', '.join(keys)}")
        if node.args.get("order"):
            parts.append(self.order(node.args["order"]))
        if node.args.get("spec"):
            parts.append(_frame(node.args["spec"]))
        over = f" OVER ({' '.join(parts)})"
        if name in functions.AGGREGATES:
            return self._aggregate(node.this, over)
        return self._called(name, functions.WINDOW[name], called(node.this)[1], over=over)

    def order(self, clause: exp.Order, place: Callable[[exp.Expr], int | None] = lambda _: None) -> str:
        """ORDER BY with the places for nulls written out; `place` tells which output column an item names."""
        if clause.args.get("siblings"):
            raise NeedsSpark("ORDER SIBLINGS BY")
        items = []
        for item in clause.expressions:
            if not isinstance(item, exp.Ordered) or item.args.get("with_fill"):
                raise NeedsSpark("ORDER BY")
            output = place(item)
            key = str(output + 1) if output is not None else self.translate(item.this).sql
            direction = "DESC" if item.args.get("desc") else "ASC"
            items.append(f"{key} {direction} NULLS {'FIRST' if item.args.get('nulls_first') else 'LAST'}")
        return f"ORDER BY {', '.join(items)}"

    _RULES: ClassVar[list[tuple[Any, Callable[[Any, Any], Typed]]]] = [
        (exp.Column, _column),
        (exp.Literal, _literal),
        (exp.Boolean, _boolean),
        (exp.Null, _null),
        (exp.Placeholder, _parameter),
        (exp.Paren, _paren),
        (tuple(_COMPARISONS), _comparison),
        (tuple(_ARITHMETIC), _arithmetic),
        (exp.Between, _between),
        ((exp.And, exp.Or), _logic),
        (exp.Not, _negation),
        (exp.Is, _is),
        (exp.In, _in),
        (exp.Exists, _exists),
        ((exp.Subquery, exp.Query), _subquery),
        (exp.ILike, lambda _, __: _refuse("ILIKE")),
        (exp.Like, _like),
        ((exp.Add, exp.Sub), _added),
        (exp.Neg, _minus),
        (exp.Cast, _cast),
        (exp.Case, _case),
        (exp.Filter, _filtered),
        (exp.Window, _window),
    ]


def without_negative_zero(value: Typed) -> Typed:
    """Spark's grouping turns -0.0 into 0.0; so does adding 0."""
    if not pa.types.is_floating(value.type):
        return value
    return Typed(f"({value.sql} + {cast('0', value.type)})", value.type)


_PARTS = frozenset({"this", "expression", "expressions"})
_OTHER_PARTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Literal: frozenset({"is_string"}),
    exp.Column: frozenset({"table", "db", "catalog"}),
    exp.Between: frozenset({"low", "high"}),
    exp.In: frozenset({"query"}),
    exp.Like: frozenset({"negate"}),
    exp.Div: frozenset({"typed", "safe"}),
    exp.DPipe: frozenset({"safe"}),
    exp.Cast: frozenset({"to"}),
    exp.TryCast: frozenset({"to", "safe"}),
    exp.Case: frozenset({"ifs", "default"}),
    exp.Window: frozenset({"partition_by", "order", "spec", "over"}),
}
"""The parts of each kind of node that its rule looks at, beside the usual ones."""


def _only_known(node: exp.Expr) -> None:
    """Refuse a node with a part that its rule would not look at: it may change the meaning."""
    if isinstance(node, exp.Query):
        return
    known = _PARTS | _OTHER_PARTS.get(type(node), frozenset())
    for key, value in node.args.items():
        if value and key not in known:
            raise NeedsSpark(f"{node.key.upper()} with {key}")


def _frame(spec: exp.WindowSpec) -> str:
    if spec.args.get("exclude"):
        raise NeedsSpark("EXCLUDE in a window frame")
    kind = str(spec.args.get("kind") or "").upper()
    for side in ("start", "end"):
        bound = spec.args.get(side)
        if bound in ("UNBOUNDED", "CURRENT ROW", None):
            continue
        if kind != "ROWS" or not isinstance(bound, exp.Literal) or not bound.name.isdigit():
            raise NeedsSpark("a window frame by value")
    return spec.sql(dialect="duckdb")


def _null_counts_as_false(node: exp.In) -> bool:
    """Whether a NULL means what false does: it stands in a filter, with AND, OR and one NOT above it."""
    above: exp.Expr | None = _bare_parent(node)
    if isinstance(above, exp.Not):
        above = _bare_parent(above)
    while isinstance(above, exp.And | exp.Or | exp.Paren):
        above = above.parent
    return isinstance(above, exp.Where | exp.Having | exp.Join)


def _bare_parent(node: exp.Expr) -> exp.Expr | None:
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return parent


def _clause(node: exp.Expr) -> str | None:
    """Which clause of the SELECT around it a node stands in."""
    while node.parent is not None and not isinstance(node.parent, exp.Query):
        node = node.parent
    return node.arg_key


def called(node: exp.Expr) -> tuple[str, list[exp.Expr]]:
    """Name and arguments of a call, however sqlglot holds it."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower(), list(node.expressions)
    if isinstance(node, exp.Extract):
        return node.this.name.lower(), [node.expression]
    if isinstance(node, exp.CurrentTimestamp | exp.CurrentDate):
        return ("current_timestamp" if isinstance(node, exp.CurrentTimestamp) else "current_date"), []
    name = node.sql_names()[0].lower() if isinstance(node, exp.Func) else node.key
    known = _ARGUMENTS.get(name)
    if known is None:
        return name, [node]
    name, keys = known
    arguments: list[exp.Expr] = []
    for key in keys:
        value = node.args.get(key)
        arguments.extend(value if isinstance(value, list) else [value] if value is not None else [])
    extra = [
        key for key, value in node.args.items() if value and key not in (*keys, "big_int", "ignore_nulls")
    ]
    return (f"{name} with {extra[0]}" if extra else name), arguments


_ARGUMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "count": ("count", ("this", "expressions")),
    "sum": ("sum", ("this",)),
    "avg": ("avg", ("this",)),
    "min": ("min", ("this", "expressions")),
    "max": ("max", ("this", "expressions")),
    "coalesce": ("coalesce", ("this", "expressions")),
    "substring": ("substring", ("this", "start", "length")),
    "trim": ("trim", ("this",)),
    "str_position": ("instr", ("this", "substr")),
}
"""Functions that the dialect keeps as nodes of their own: their Spark name and where the arguments are."""


def _refuse(what: str) -> Typed:
    raise NeedsSpark(what)
