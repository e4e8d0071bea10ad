"""From a Spark query to one of DuckDB: relations, names, clauses.

No name of the user's reaches DuckDB: relations become r0, r1, … and their columns c0, c1, …, so that case,
quoting and duplicate names mean what they mean in Spark, and nothing can be injected through them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from velostream.serving.expressions import Expressions, called
from velostream.serving.functions import AGGREGATES
from velostream.serving.typed import NULL, NeedsSpark, Typed, cast_node, number, scalar_type

if TYPE_CHECKING:
    from collections.abc import Mapping

_SELECT_CLAUSES = frozenset(
    {
        "expressions",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "order",
        "limit",
        "offset",
        "distinct",
        "with_",
    }
)
_SET_CLAUSES = frozenset({"this", "expression", "distinct", "order", "limit", "offset", "with_"})
_TABLE_PARTS = frozenset({"this", "alias"})


@dataclass(frozen=True)
class OutputColumn:
    """One column of a query's result: the name that readers see, and the type."""

    name: str
    type: pa.DataType


@dataclass(frozen=True)
class Translation:
    """A query for DuckDB."""

    sql: str
    columns: tuple[OutputColumn, ...]
    tables: Mapping[str, str]
    """Name in the DuckDB text to name of the table."""
    parameters: Mapping[str, str]
    """Name in the DuckDB text to name of the user's parameter."""


@dataclass
class _Relation:
    """Something in FROM: how the user calls it, how DuckDB does, and its columns."""

    name: str | None
    internal: str
    columns: list[OutputColumn]
    hidden: set[int] = field(default_factory=set)
    """Columns merged away by USING: `SELECT *` and bare names do not see them."""

    def typed(self, position: int) -> Typed:
        column = exp.column(f"c{position}", table=self.internal)
        return Typed(column, self.columns[position].type)


@dataclass
class _Scope:
    """The names that an expression can see."""

    relations: list[_Relation] = field(default_factory=list)
    merged: list[tuple[str, Typed]] = field(default_factory=list)
    aliases: list[tuple[str, exp.Expr]] = field(default_factory=list)
    zero_keys: set[str] = field(default_factory=set)
    outer: _Scope | None = None


class Translator:
    """Translates one query over tables with known schemas; single use."""

    def __init__(self, schemas: Mapping[str, pa.Schema], parameters: Mapping[str, Any]) -> None:
        self._schemas = {name.casefold(): (name, schema) for name, schema in schemas.items()}
        self._values = parameters
        self._tables: dict[str, str] = {}
        self._bound: dict[str, str] = {}
        self._positional: dict[int, str] = {}
        self._count = 0

    def translate(self, tree: exp.Expr) -> Translation:
        """The whole query; raises NeedsSpark."""
        self._number_parameters(tree)
        query, columns = self._query(tree, None, {})
        return Translation(query.sql(dialect="duckdb"), tuple(columns), self._tables, self._bound)

    # --- parameters ---------------------------------------------------------------------------------

    def _number_parameters(self, tree: exp.Expr) -> None:
        nodes = sorted(tree.find_all(exp.Placeholder, bfs=False), key=lambda node: node.meta.get("start", 0))
        names: list[str] = []
        for node in nodes:
            name = node.this or f"{len(names) + 1}"
            if name not in names:
                names.append(name)
            self._positional[id(node)] = name

    def parameter(self, node: exp.Placeholder) -> tuple[Any, str]:
        """The value and the internal name of a parameter."""
        name = self._positional[id(node)]
        if name not in self._values:
            raise NeedsSpark(f'parameter "{name}" has no value')
        internal = next(
            (inner for inner, outer in self._bound.items() if outer == name), f"p{len(self._bound)}"
        )
        value = self._values[name]
        if value is not None:
            self._bound[internal] = name
        return value, internal

    # --- queries ------------------------------------------------------------------------------------

    def _query(
        self, tree: exp.Expr, outer: _Scope | None, ctes: Mapping[str, _Relation]
    ) -> tuple[exp.Query, list[OutputColumn]]:
        if isinstance(tree, exp.Subquery):
            if any(value for key, value in tree.args.items() if key != "this"):
                raise NeedsSpark("a parenthesised query with clauses of its own")
            return self._query(tree.this, outer, ctes)
        if isinstance(tree, exp.Select):
            return self._select(tree, outer, ctes)
        if isinstance(tree, exp.SetOperation):
            return self._set_operation(tree, outer, ctes)
        raise NeedsSpark(tree.key.upper())

    def _with(
        self, tree: exp.Query, outer: _Scope | None, ctes: Mapping[str, _Relation]
    ) -> tuple[exp.With | None, Mapping[str, _Relation]]:
        clause = tree.args.get("with_")
        if clause is None:
            return None, ctes
        if clause.args.get("recursive"):
            raise NeedsSpark("WITH RECURSIVE")
        known = dict(ctes)
        made = []
        for cte in clause.expressions:
            _only(cte, frozenset({"this", "alias"}))
            query, columns = self._query(cte.this, outer, known)
            columns = _renamed(columns, cte.args["alias"])
            internal = self._fresh()
            known[cte.alias.casefold()] = _Relation(cte.alias, internal, columns)
            made.append(exp.CTE(this=query, alias=exp.TableAlias(this=exp.to_identifier(internal))))
        return exp.With(expressions=made), known

    def _fresh(self) -> str:
        self._count += 1
        return f"r{self._count - 1}"

    def _set_operation(
        self, tree: exp.SetOperation, outer: _Scope | None, ctes: Mapping[str, _Relation]
    ) -> tuple[exp.Query, list[OutputColumn]]:
        _only(tree, _SET_CLAUSES)
        with_, ctes = self._with(tree, outer, ctes)
        left, columns = self._query(tree.left, outer, ctes)
        right, others = self._query(tree.right, outer, ctes)
        if [column.type for column in columns] != [column.type for column in others]:
            raise NeedsSpark(f"{tree.key.upper()} of different types")
        floating = any(pa.types.is_floating(column.type) for column in columns)
        if tree.args.get("distinct") and (
            floating or not all(scalar_type(column.type) for column in columns)
        ):
            raise NeedsSpark(f"{tree.key.upper()} DISTINCT of floating or nested values")
        made = type(tree)(
            this=_wrapped(left), expression=_wrapped(right), distinct=bool(tree.args.get("distinct"))
        )
        scope = _Scope([], outer=outer)
        query = exp.select(*(exp.column(f"c{number_}") for number_ in range(len(columns)))).from_(
            exp.Subquery(this=made, alias=exp.TableAlias(this=exp.to_identifier(self._fresh())))
        )
        self._finish(tree, query, scope, columns, [None] * len(columns), ctes)
        if with_ is not None:
            query.set("with_", with_)
        return query, columns

    # --- SELECT -------------------------------------------------------------------------------------

    def _select(
        self, tree: exp.Select, outer: _Scope | None, ctes: Mapping[str, _Relation]
    ) -> tuple[exp.Query, list[OutputColumn]]:
        _only(tree, _SELECT_CLAUSES)
        with_, ctes = self._with(tree, outer, ctes)
        scope = _Scope(outer=outer)
        query = exp.Select()
        self._from(tree, query, scope, ctes)
        speaker = Expressions(_Around(self, scope, ctes))
        where = tree.args.get("where")
        if where is not None:
            query.set("where", exp.Where(this=speaker.condition(where.this, "WHERE")))
        items = self._items(tree, scope)
        scope.aliases = [(name, node) for name, node, _ in items if node is not None]
        self._group(tree, query, scope, speaker, items)
        distinct = tree.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise NeedsSpark("DISTINCT ON")
        outputs, columns = self._outputs(items, scope, speaker, distinct=distinct is not None)
        query.set("expressions", outputs)
        if distinct is not None:
            query.set("distinct", exp.Distinct())
        having = tree.args.get("having")
        if having is not None:
            scope.aliases = [(name, node) for name, node, _ in items if node is not None]
            query.set("having", exp.Having(this=speaker.condition(having.this, "HAVING")))
        sources = [node for _, node, _ in items]
        self._finish(tree, query, scope, columns, sources, ctes)
        if with_ is not None:
            query.set("with_", with_)
        return query, columns

    def _items(self, tree: exp.Select, scope: _Scope) -> list[tuple[str, exp.Expr | None, Typed | None]]:
        """The SELECT list with stars expanded: name, and either the user's expression or a column."""
        items: list[tuple[str, exp.Expr | None, Typed | None]] = []
        for item in tree.expressions:
            if isinstance(item, exp.Star) or (
                isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
            ):
                star = item if isinstance(item, exp.Star) else item.this
                if any(star.args.values()):
                    raise NeedsSpark("* with EXCEPT")
                qualifier = item.table if isinstance(item, exp.Column) else ""
                items.extend((name, None, typed) for name, typed in _star(scope, qualifier))
            elif isinstance(item, exp.Alias):
                items.append((item.alias, item.this, None))
            elif isinstance(item, exp.Aliases):
                raise NeedsSpark("several aliases")
            else:
                items.append((_default_name(item), item, None))
        return items

    def _outputs(
        self,
        items: list[tuple[str, exp.Expr | None, Typed | None]],
        scope: _Scope,
        speaker: Expressions,
        *,
        distinct: bool,
    ) -> tuple[list[exp.Expr], list[OutputColumn]]:
        outputs, columns = [], []
        aliases = scope.aliases
        for position, (name, node, ready) in enumerate(items):
            # An expression of the list sees the aliases before it.
            scope.aliases = [(alias, item) for alias, item, _ in items[:position] if item is not None]
            typed = ready if ready is not None else speaker.translate(node) if node is not None else None
            if typed is None:
                raise NeedsSpark("SELECT")
            if node is None and typed.node.sql() in scope.zero_keys:
                typed = _without_negative_zero(typed)
            if distinct:
                if not scalar_type(typed.type) and typed.type != NULL:
                    raise NeedsSpark("DISTINCT of nested values")
                typed = _without_negative_zero(typed)
            kind = typed.type
            outputs.append(exp.alias_(typed.node, f"c{position}"))
            columns.append(OutputColumn(name, kind))
        scope.aliases = aliases
        return outputs, columns

    def _group(
        self,
        tree: exp.Select,
        query: exp.Select,
        scope: _Scope,
        speaker: Expressions,
        items: list[tuple[str, exp.Expr | None, Typed | None]],
    ) -> None:
        group = tree.args.get("group")
        if group is None:
            return
        extra = [key for key, value in group.args.items() if value and key != "expressions"]
        if extra:
            raise NeedsSpark(f"GROUP BY {extra[0]}")
        keys = []
        floating: set[str] = set()
        for item in group.expressions:
            source: exp.Expr = item
            if isinstance(item, exp.Literal) and not item.is_string:
                source = _chosen(items, item.this)
            typed = speaker.translate(source)
            if not scalar_type(typed.type):
                raise NeedsSpark("GROUP BY of nested values")
            if pa.types.is_floating(typed.type):
                floating.add(typed.node.sql())
                typed = _without_negative_zero(typed)
            keys.append(typed.node)
        scope.zero_keys = floating
        query.set("group", exp.Group(expressions=keys))

    def _finish(
        self,
        tree: exp.Query,
        query: exp.Query,
        scope: _Scope,
        columns: list[OutputColumn],
        sources: list[exp.Expr | None],
        ctes: Mapping[str, _Relation],
    ) -> None:
        """ORDER BY, LIMIT and OFFSET. A name in ORDER BY is first one of the output's."""
        speaker = Expressions(_Around(self, scope, ctes))
        order = tree.args.get("order")
        if order is not None:
            if order.args.get("siblings"):
                raise NeedsSpark("ORDER SIBLINGS BY")
            ordered = []
            for item in order.expressions:
                place = _output_place(item, columns, sources)
                ordered.append(speaker.ordered(item, number(place + 1) if place is not None else None))
            query.set("order", exp.Order(expressions=ordered))
        for key, make in (("limit", exp.Limit), ("offset", exp.Offset)):
            clause = tree.args.get(key)
            if clause is None:
                continue
            if not isinstance(clause, make):
                raise NeedsSpark(key.upper())
            _only(clause, frozenset({"expression"}))
            amount = speaker.translate(clause.expression)
            if not isinstance(amount.literal, int):
                raise NeedsSpark(f"{key.upper()} that is not a number")
            query.set(key, make(expression=amount.node))

    # --- FROM ---------------------------------------------------------------------------------------

    def _from(
        self, tree: exp.Select, query: exp.Select, scope: _Scope, ctes: Mapping[str, _Relation]
    ) -> None:
        start = tree.args.get("from_")
        if start is None:
            if tree.args.get("joins"):
                raise NeedsSpark("joins without FROM")
            return
        node, relation = self._relation(start.this, scope, ctes)
        scope.relations.append(relation)
        query.set("from_", exp.From(this=node))
        joins = [*(start.this.args.get("joins") or []), *(tree.args.get("joins") or [])]
        query.set("joins", [self._join(join, scope, ctes) for join in joins])

    def _relation(
        self, node: exp.Expr, scope: _Scope, ctes: Mapping[str, _Relation]
    ) -> tuple[exp.Expr, _Relation]:
        if isinstance(node, exp.Table):
            return self._table(node, ctes)
        if isinstance(node, exp.Subquery):
            extra = [
                key for key, value in node.args.items() if value and key not in ("this", "alias", "joins")
            ]
            if extra:
                raise NeedsSpark(f"{extra[0]} of a derived table")
            query, columns = self._query(node.this, None, ctes)
            columns = _renamed(columns, node.args.get("alias"))
            internal = self._fresh()
            made = exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(internal)))
            return made, _Relation(node.alias or None, internal, columns)
        raise NeedsSpark(f"FROM {node.key}")

    def _table(self, node: exp.Table, ctes: Mapping[str, _Relation]) -> tuple[exp.Expr, _Relation]:
        extra = [key for key, value in node.args.items() if value and key not in (*_TABLE_PARTS, "joins")]
        if extra or not isinstance(node.this, exp.Identifier):
            raise NeedsSpark(f"FROM with {extra[0] if extra else node.this.key}")
        internal = self._fresh()
        alias = node.args.get("alias")
        cte = ctes.get(node.name.casefold())
        if cte is not None:
            columns, base = cte.columns, cte.internal
        else:
            found = self._schemas.get(node.name.casefold())
            if found is None:
                raise NeedsSpark(f'relation "{node.name}"')
            name, schema = found
            columns = [OutputColumn(each.name, each.type) for each in schema]
            base = next(
                (key for key, value in self._tables.items() if value == name), f"t{len(self._tables)}"
            )
            self._tables[base] = name
        made = exp.Table(this=exp.to_identifier(base), alias=exp.TableAlias(this=exp.to_identifier(internal)))
        return made, _Relation(node.alias or node.name, internal, _renamed(columns, alias))

    def _join(self, join: exp.Join, scope: _Scope, ctes: Mapping[str, _Relation]) -> exp.Join:
        known = {"this", "side", "kind", "on", "using"}
        extra = [key for key, value in join.args.items() if value and key not in known]
        if extra or join.args.get("method"):
            raise NeedsSpark(f"join with {extra[0] if extra else 'method'}")
        side, kind = join.side.upper(), join.kind.upper()
        if (side, kind) not in _JOINS:
            raise NeedsSpark(f"{side} {kind} JOIN")
        node, relation = self._relation(join.this, scope, ctes)
        if join.this.args.get("joins"):
            raise NeedsSpark("nested joins")
        made = exp.Join(this=node, **_JOINS[side, kind])
        inner = kind in ("SEMI", "ANTI")
        probe = _Scope([*scope.relations, relation], scope.merged, outer=scope.outer)
        on, using = join.args.get("on"), join.args.get("using")
        if using:
            made.set("on", self._using(using, scope, relation, side, inner=inner))
        elif on is not None:
            made.set("on", Expressions(_Around(self, probe, ctes)).condition(on, "ON"))
        elif kind != "CROSS":
            if side or inner:
                raise NeedsSpark("a join without a condition")
            made = exp.Join(this=node, kind="CROSS")
        if not inner:
            scope.relations.append(relation)
        return made

    def _using(
        self, using: list[exp.Expr], scope: _Scope, relation: _Relation, side: str, *, inner: bool
    ) -> exp.Expr:
        condition: exp.Expr | None = None
        for item in using:
            name = item.name.casefold()
            left = _find(scope, name, None)
            places = [
                place for place, column in enumerate(relation.columns) if column.name.casefold() == name
            ]
            if left is None or len(places) != 1 or left.type != relation.columns[places[0]].type:
                raise NeedsSpark("USING of columns that differ")
            right = relation.typed(places[0])
            same = exp.EQ(this=left.node.copy(), expression=right.node.copy())
            condition = same if condition is None else exp.And(this=condition, expression=same)
            if inner:
                continue
            relation.hidden.add(places[0])
            for other in scope.relations:
                other.hidden.update(
                    place for place, column in enumerate(other.columns) if column.name.casefold() == name
                )
            kept = {"": left, "LEFT": left, "RIGHT": right}.get(side)
            if kept is None:
                kept = Typed(exp.Coalesce(this=left.node, expressions=[right.node]), left.type)
            scope.merged = [entry for entry in scope.merged if entry[0].casefold() != name]
            scope.merged.append((item.name, kept))
        if condition is None:
            raise NeedsSpark("USING without columns")
        return condition

    def subquery(
        self, tree: exp.Expr, scope: _Scope, ctes: Mapping[str, _Relation]
    ) -> tuple[exp.Query, list[OutputColumn]]:
        """A query inside of an expression, which sees the names around it."""
        return self._query(tree, scope, ctes)


@dataclass(frozen=True)
class _Around:
    """The surroundings of the expressions of one SELECT."""

    translator: Translator
    scope: _Scope
    ctes: Mapping[str, _Relation]

    def column(self, node: exp.Column) -> Typed:
        """A column, or an alias that stands for an expression."""
        if node.args.get("db") or node.args.get("catalog"):
            raise NeedsSpark(f"{node.sql()}")
        scope: _Scope | None = self.scope
        name, qualifier = node.name.casefold(), node.table.casefold() or None
        while scope is not None:
            found = _find(scope, name, qualifier)
            if found is not None:
                return found
            if qualifier is None and scope is self.scope:
                alias = [item for alias, item in scope.aliases if alias.casefold() == name]
                if len(alias) == 1:
                    return self._aliased(alias[0], name)
            scope = scope.outer
        raise NeedsSpark(f'column "{node.sql()}"')

    def grouped(self, value: Typed) -> Typed:
        """Grouping by a floating value makes one of 0.0 and -0.0."""
        if self.scope.zero_keys and value.node.sql() in self.scope.zero_keys:
            return _without_negative_zero(value)
        return value

    def _aliased(self, node: exp.Expr, name: str) -> Typed:
        before = self.scope.aliases
        self.scope.aliases = [(alias, item) for alias, item in before if alias.casefold() != name]
        try:
            return Expressions(self).translate(node)
        finally:
            self.scope.aliases = before

    def subquery(self, tree: exp.Expr) -> tuple[exp.Expr, list[pa.DataType]]:
        """A query inside of the expression."""
        query, columns = self.translator.subquery(tree, self.scope, self.ctes)
        return query, [column.type for column in columns]

    def parameter(self, node: exp.Placeholder) -> tuple[Any, str]:
        """A parameter."""
        return self.translator.parameter(node)


_JOINS: dict[tuple[str, str], dict[str, str]] = {
    ("", ""): {},
    ("", "INNER"): {},
    ("", "CROSS"): {"kind": "CROSS"},
    ("LEFT", ""): {"side": "LEFT"},
    ("LEFT", "OUTER"): {"side": "LEFT"},
    ("RIGHT", ""): {"side": "RIGHT"},
    ("RIGHT", "OUTER"): {"side": "RIGHT"},
    ("FULL", ""): {"side": "FULL"},
    ("FULL", "OUTER"): {"side": "FULL"},
    ("LEFT", "SEMI"): {"kind": "SEMI"},
    ("LEFT", "ANTI"): {"kind": "ANTI"},
    ("", "SEMI"): {"kind": "SEMI"},
    ("", "ANTI"): {"kind": "ANTI"},
}


def _only(tree: exp.Expr, known: frozenset[str]) -> None:
    for key, value in tree.args.items():
        if value and key not in known:
            raise NeedsSpark(key.strip("_").upper())


def _wrapped(query: exp.Query) -> exp.Query:
    """A side of a set operation with clauses of its own in parentheses."""
    return exp.Subquery(this=query)


def _find(scope: _Scope, name: str, qualifier: str | None) -> Typed | None:
    if qualifier is None:
        merged = [typed for known, typed in scope.merged if known.casefold() == name]
        if merged:
            return merged[0]
    found = [
        relation.typed(place)
        for relation in scope.relations
        if qualifier is None or (relation.name or "").casefold() == qualifier
        for place, column in enumerate(relation.columns)
        if column.name.casefold() == name and (qualifier is not None or place not in relation.hidden)
    ]
    if len(found) > 1:
        raise NeedsSpark(f'column "{name}" is ambiguous')
    return found[0] if found else None


def _star(scope: _Scope, qualifier: str) -> list[tuple[str, Typed]]:
    if not scope.relations:
        raise NeedsSpark("* without FROM")
    columns = [] if qualifier else list(scope.merged)
    for relation in scope.relations:
        if qualifier and (relation.name or "").casefold() != qualifier.casefold():
            continue
        columns.extend(
            (column.name, relation.typed(place))
            for place, column in enumerate(relation.columns)
            if qualifier or place not in relation.hidden
        )
    if not columns:
        raise NeedsSpark(f"{qualifier}.*")
    return columns


def _renamed(columns: list[OutputColumn], alias: exp.Expr | None) -> list[OutputColumn]:
    names = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    if not names:
        return columns
    if len(names) != len(columns):
        raise NeedsSpark("aliases for some of the columns")
    return [OutputColumn(name.name, column.type) for name, column in zip(names, columns, strict=True)]


def _without_negative_zero(typed: Typed) -> Typed:
    """Spark's grouping turns -0.0 into 0.0; so does adding 0."""
    if not pa.types.is_floating(typed.type):
        return typed
    zero = cast_node(number(0), typed.type)
    return Typed(exp.Paren(this=exp.Add(this=typed.node.copy(), expression=zero)), typed.type)


def _chosen(items: list[tuple[str, exp.Expr | None, Typed | None]], ordinal: str) -> exp.Expr:
    place = int(ordinal) - 1 if ordinal.isdigit() else -1
    node = items[place][1] if 0 <= place < len(items) else None
    if node is None:
        raise NeedsSpark(f"GROUP BY {ordinal}")
    return node


def _output_place(item: exp.Expr, columns: list[OutputColumn], sources: list[exp.Expr | None]) -> int | None:
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


def _default_name(node: exp.Expr) -> str:
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
        inner = ", ".join("1" if isinstance(each, exp.Star) else _default_name(each) for each in arguments)
        return f"{name}({'DISTINCT ' if distinct else ''}{inner})"
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod):
        sign = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}[node.key]
        return f"({_default_name(node.left)} {sign} {_default_name(node.right)})"
    return node.sql(dialect="spark")
