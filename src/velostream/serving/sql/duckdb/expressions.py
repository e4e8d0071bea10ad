"""From a Spark expression to one of DuckDB, node by node."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from sqlglot import exp

from velostream.errors import TypeMismatchError
from velostream.serving.sql.duckdb import arithmetic, functions
from velostream.serving.sql.duckdb.typed import (
    BOOLEAN,
    INT,
    NULL,
    STRING,
    NeedsSpark,
    Typed,
    cast_node,
    coerce_all,
    require,
    typed_value,
)
from velostream.sql.text.spark_text import SPARK
from velostream.sql.types import arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_AGGREGATE_CALLS = frozenset(
    {"count", "sum", "avg", "min", "max", "bool_and", "bool_or", "first_value", "last_value"}
    | set(functions.WINDOW)
)


class Surroundings(Protocol):
    """What an expression needs from the query around it."""

    def column(self, node: exp.Column) -> Typed:
        """A column by name."""

    def grouped(self, value: Typed) -> Typed:
        """The value, in the form that grouping by it gives it."""

    def subquery(self, tree: exp.Expr) -> tuple[exp.Expr, list[pa.DataType]]:
        """A query inside of the expression, and the types of its columns."""

    def parameter(self, node: exp.Placeholder) -> tuple[Any, str]:
        """The value of a parameter, and the name under which it is bound."""


class Expressions:
    """Translates the expressions of one query."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings

    def translate(self, node: exp.Expr) -> Typed:
        """The expression for DuckDB with Spark's type; raises NeedsSpark."""
        for kind, rule in self._RULES:
            if isinstance(node, kind):
                _only_known(node)
                return self._around.grouped(rule(self, node))
        if isinstance(node, exp.Func):
            return self._around.grouped(self._function(node))
        raise NeedsSpark(node.key.upper())

    def condition(self, node: exp.Expr, what: str) -> exp.Expr:
        """A boolean expression."""
        return require(self.translate(node), BOOLEAN, what)

    # --- leaves -------------------------------------------------------------------------------------

    def _column(self, node: exp.Column) -> Typed:
        return self._around.column(node)

    def _literal(self, node: exp.Literal) -> Typed:
        if node.is_string:
            return Typed(cast_node(exp.Literal.string(node.this), STRING), STRING, node.this)
        text = node.this
        value: Any = text
        if text.isdigit():
            value = int(text)
        elif "e" in text.lower():
            value = float(text)
        else:
            value = Decimal(text)
        return typed_value(value, exp.Literal.number(text))

    def _boolean(self, node: exp.Boolean) -> Typed:
        return Typed(exp.Boolean(this=node.this), BOOLEAN)

    def _null(self, node: exp.Null) -> Typed:
        return Typed(exp.null(), NULL)

    def _parameter(self, node: exp.Placeholder) -> Typed:
        value, name = self._around.parameter(node)
        return typed_value(value, exp.Parameter(this=exp.var(name)))

    def _paren(self, node: exp.Paren) -> Typed:
        inner = self.translate(node.this)
        return Typed(exp.Paren(this=inner.node), inner.type, inner.literal, inner.unsure)

    # --- operators ----------------------------------------------------------------------------------

    def _comparison(self, node: exp.Binary) -> Typed:
        if isinstance(node.expression, exp.Any | exp.All):
            raise NeedsSpark("ANY and ALL")
        return arithmetic.compared(self.translate(node.left), self.translate(node.right), type(node))

    def _same(self, node: exp.NullSafeEQ) -> Typed:
        return arithmetic.compared(self.translate(node.left), self.translate(node.right), exp.NullSafeEQ)

    def _distinct_from(self, node: exp.NullSafeNEQ) -> Typed:
        return arithmetic.compared(self.translate(node.left), self.translate(node.right), exp.NullSafeNEQ)

    def _between(self, node: exp.Between) -> Typed:
        value = self.translate(node.this)
        low = arithmetic.compared(value, self.translate(node.args["low"]), exp.GTE)
        high = arithmetic.compared(value, self.translate(node.args["high"]), exp.LTE)
        return Typed(exp.Paren(this=exp.And(this=low.node, expression=high.node)), BOOLEAN)

    def _logic(self, node: exp.And | exp.Or) -> Typed:
        left, right = self.condition(node.left, "logic"), self.condition(node.right, "logic")
        return Typed(exp.Paren(this=type(node)(this=left, expression=right)), BOOLEAN)

    def _negation(self, node: exp.Not) -> Typed:
        return Typed(exp.Paren(this=exp.Not(this=self.condition(node.this, "NOT"))), BOOLEAN)

    def _is(self, node: exp.Is) -> Typed:
        value = self.translate(node.this)
        if isinstance(node.expression, exp.Null):
            return functions.SCALAR["isnull"]([value])
        if isinstance(node.expression, exp.Boolean):
            wanted = exp.Boolean(this=node.expression.this)
            tested = exp.NullSafeEQ(this=require(value, BOOLEAN, "IS"), expression=wanted)
            return Typed(exp.Paren(this=tested), BOOLEAN)
        raise NeedsSpark("IS")

    def _in(self, node: exp.In) -> Typed:
        value = self.translate(node.this)
        query = node.args.get("query")
        if query is None and not node.args.get("unnest") and not node.args.get("field"):
            return arithmetic.member(value, [self.translate(option) for option in node.expressions])
        if query is None:
            raise NeedsSpark("IN")
        if not _null_counts_as_false(node):
            raise NeedsSpark("the value of IN of a query, which is never NULL in Spark")
        tree, kinds = self._around.subquery(query.unnest())
        if len(kinds) != 1 or kinds[0] != value.type:
            raise NeedsSpark("IN of a query with another type")
        return Typed(exp.Paren(this=exp.In(this=value.node, query=exp.Subquery(this=tree))), BOOLEAN)

    def _exists(self, node: exp.Exists) -> Typed:
        tree, _ = self._around.subquery(node.this.unnest())
        return Typed(exp.Exists(this=tree), BOOLEAN)

    def _subquery(self, node: exp.Subquery | exp.Query) -> Typed:
        around = node.parent_select
        if isinstance(around, exp.Select) and around.args.get("group") and _clause(node) == "expressions":
            raise NeedsSpark("a subquery beside aggregates")
        tree, kinds = self._around.subquery(node.unnest())
        if len(kinds) != 1:
            raise NeedsSpark("a scalar subquery of several columns")
        return Typed(exp.Subquery(this=tree), kinds[0])

    def _like(self, node: exp.Like) -> Typed:
        value, pattern = self.translate(node.this), self.translate(node.expression)
        if not isinstance(pattern.literal, str) or "\\" in pattern.literal:
            raise NeedsSpark("LIKE with a pattern that is not a plain constant")
        tested: exp.Expr = exp.Like(this=require(value, STRING, "LIKE"), expression=pattern.node)
        if node.args.get("negate"):
            tested = exp.Not(this=exp.Paren(this=tested))
        return Typed(exp.Paren(this=tested), BOOLEAN)

    def _sum_or_difference(self, node: exp.Add | exp.Sub) -> Typed:
        if isinstance(node.expression, exp.Interval):
            return arithmetic.shifted(self.translate(node.left), node.expression, type(node))
        return arithmetic.sum_or_difference(self.translate(node.left), self.translate(node.right), type(node))

    def _product(self, node: exp.Mul) -> Typed:
        return arithmetic.product(self.translate(node.left), self.translate(node.right))

    def _quotient(self, node: exp.Div) -> Typed:
        return arithmetic.quotient(self.translate(node.left), self.translate(node.right))

    def _whole_quotient(self, node: exp.IntDiv) -> Typed:
        return arithmetic.whole_quotient(self.translate(node.left), self.translate(node.right))

    def _remainder(self, node: exp.Mod) -> Typed:
        return arithmetic.remainder(self.translate(node.left), self.translate(node.right))

    def _minus(self, node: exp.Neg) -> Typed:
        return arithmetic.negated(self.translate(node.this), written=isinstance(node.this, exp.Literal))

    def _concatenation(self, node: exp.DPipe) -> Typed:
        return functions.concatenation([self.translate(node.left), self.translate(node.right)])

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
        results.append(self.translate(otherwise) if otherwise is not None else Typed(exp.null(), NULL))
        nodes, kind = coerce_all(results, "CASE")
        branches = [
            exp.If(this=condition, true=result)
            for condition, result in zip(conditions, nodes[:-1], strict=True)
        ]
        return Typed(exp.Paren(this=exp.Case(ifs=branches, default=nodes[-1])), kind)

    def _when(self, subject: exp.Expr | None, test: exp.Expr) -> exp.Expr:
        if subject is None:
            return self.condition(test, "WHEN")
        return arithmetic.compared(self.translate(subject), self.translate(test), exp.EQ).node

    # --- functions ----------------------------------------------------------------------------------

    def _function(self, node: exp.Func) -> Typed:
        name, arguments = called(node)
        if name in functions.AGGREGATES:
            return self._aggregate(node)
        rule = functions.SCALAR.get(name)
        if rule is None:
            raise NeedsSpark(f"function {name}")
        return _naming(name, rule, [self.translate(argument) for argument in arguments])

    def _aggregate(self, node: exp.Expr) -> Typed:
        name, arguments = called(node)
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            if arguments[0].args.get("on"):
                raise NeedsSpark("DISTINCT ON")
            arguments = arguments[0].expressions
        if name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            arguments = []
        values = [self.translate(argument) for argument in arguments]
        rule = functions.AGGREGATES[name]
        return _naming(name, lambda given: rule(given, distinct), values)

    def _filtered(self, node: exp.Filter) -> Typed:
        if called(node.this)[0] not in functions.AGGREGATES:
            raise NeedsSpark("FILTER")
        made = self._aggregate(node.this)
        condition = self.condition(node.expression.this, "FILTER")

        def with_filter(aggregate: exp.Expr) -> exp.Expr:
            return exp.Filter(this=aggregate, expression=exp.Where(this=condition.copy()))

        return Typed(_wrapped(made.node, with_filter), made.type)

    def _window(self, node: exp.Window) -> Typed:
        name = called(node.this)[0] if isinstance(node.this, exp.Func) else ""
        if name in functions.WINDOW:
            arguments = [self.translate(argument) for argument in called(node.this)[1]]
            made = _naming(name, functions.WINDOW[name], arguments)
        elif name in functions.AGGREGATES:
            made = self._aggregate(node.this)
        else:
            raise NeedsSpark(f"{name or node.this.key} OVER")
        partition = [self.translate(part).node for part in node.args.get("partition_by") or []]
        order = node.args.get("order")
        ordering = (
            exp.Order(expressions=[self.ordered(item) for item in order.expressions]) if order else None
        )
        frame = _frame(node.args.get("spec"))

        def over(function: exp.Expr) -> exp.Expr:
            return exp.Window(
                this=function,
                partition_by=[part.copy() for part in partition],
                order=ordering.copy() if ordering else None,
                spec=frame.copy() if frame else None,
                over="OVER",
            )

        windowed = _wrapped(made.node, over)
        numbering = name in functions.WINDOW and made.type == INT and name not in ("lag", "lead")
        return Typed(cast_node(windowed, INT) if numbering else windowed, made.type)

    def ordered(self, item: exp.Expr, value: exp.Expr | None = None) -> exp.Expr:
        """One item of ORDER BY with its place for nulls written out."""
        if not isinstance(item, exp.Ordered) or item.args.get("with_fill"):
            raise NeedsSpark("ORDER BY")
        node = value if value is not None else self.translate(item.this).node
        return exp.Ordered(
            this=node, desc=bool(item.args.get("desc")), nulls_first=bool(item.args.get("nulls_first"))
        )

    _RULES: ClassVar[list[tuple[Any, Callable[[Any, Any], Typed]]]] = [
        (exp.Column, _column),
        (exp.Literal, _literal),
        (exp.Boolean, _boolean),
        (exp.Null, _null),
        (exp.Placeholder, _parameter),
        (exp.Paren, _paren),
        (exp.NullSafeEQ, _same),
        (exp.NullSafeNEQ, _distinct_from),
        (_COMPARISONS, _comparison),
        (exp.Between, _between),
        ((exp.And, exp.Or), _logic),
        (exp.Not, _negation),
        (exp.Is, _is),
        (exp.In, _in),
        (exp.Exists, _exists),
        ((exp.Subquery, exp.Query), _subquery),
        (exp.ILike, lambda _, __: _refuse("ILIKE")),
        (exp.Like, _like),
        ((exp.Add, exp.Sub), _sum_or_difference),
        (exp.Mul, _product),
        (exp.Div, _quotient),
        (exp.IntDiv, _whole_quotient),
        (exp.Mod, _remainder),
        (exp.Neg, _minus),
        (exp.DPipe, _concatenation),
        (exp.Cast, _cast),
        (exp.Case, _case),
        (exp.Filter, _filtered),
        (exp.Window, _window),
    ]


def _wrapped(node: exp.Expr, wrap: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """The aggregate calls of a translated aggregate, each wrapped; their arguments are left alone."""
    if isinstance(node, exp.Anonymous) and node.this in _AGGREGATE_CALLS:
        return wrap(node)
    copy = node.copy()

    def visit(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Anonymous) and part.this in _AGGREGATE_CALLS:
            return wrap(part.copy())
        return part

    return copy.transform(visit)


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


def _frame(spec: exp.WindowSpec | None) -> exp.WindowSpec | None:
    if spec is None:
        return None
    if spec.args.get("exclude"):
        raise NeedsSpark("EXCLUDE in a window frame")
    kind = str(spec.args.get("kind") or "").upper()
    for side in ("start", "end"):
        bound = spec.args.get(side)
        if bound in ("UNBOUNDED", "CURRENT ROW", None):
            continue
        if kind != "ROWS" or not isinstance(bound, exp.Literal) or not bound.name.isdigit():
            raise NeedsSpark("a window frame by value")
    return spec.copy()


def _naming(name: str, rule: Callable[[list[Typed]], Typed], values: list[Typed]) -> Typed:
    try:
        return rule(values)
    except NeedsSpark as exc:
        raise NeedsSpark(f"function {name}: {exc.reason}") from exc


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
