"""From a Spark query to one of DuckDB: relations, names, clauses.

No name of the user's reaches DuckDB: relations become r0, r1, … and their columns c0, c1, …, so that case,
quoting and duplicate names mean what they mean in Spark, and nothing can be injected through them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from velostream.serving.sql.duckdb.columns import Item, chosen, default_name, output_place
from velostream.serving.sql.duckdb.expressions import Expressions
from velostream.serving.sql.duckdb.scopes import OutputColumn, Relation, Scope, expand_star, find, renamed
from velostream.serving.sql.duckdb.typed import NULL, NeedsSpark, Typed, cast_node, number, scalar_type

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
class Translation:
    """A query for DuckDB."""

    sql: str
    columns: tuple[OutputColumn, ...]
    tables: Mapping[str, str]
    """Name in the DuckDB text to name of the table."""
    parameters: Mapping[str, str]
    """Name in the DuckDB text to name of the user's parameter."""


class Translator:
    """Translates one query over tables with known schemas; single use."""

    def __init__(self, schemas: Mapping[str, pa.Schema], parameters: Mapping[str, Any]) -> None:
        self._schemas = {name.casefold(): (name, schema) for name, schema in schemas.items()}
        self._values = parameters
        self._tables: dict[str, str] = {}
        self._bound: dict[str, str] = {}
        self._internal: dict[str, str] = {}
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
        names: set[str] = set()
        for node in nodes:
            name = node.this or f"{len(names) + 1}"
            names.add(name)
            self._positional[id(node)] = name

    def parameter(self, node: exp.Placeholder) -> tuple[Any, str]:
        """The value and the internal name of a parameter."""
        name = self._positional[id(node)]
        if name not in self._values:
            raise NeedsSpark(f'parameter "{name}" has no value')
        value = self._values[name]
        internal = self._internal.get(name, f"p{len(self._bound)}")
        if value is not None:
            self._internal[name] = internal
            self._bound[internal] = name
        return value, internal

    # --- queries ------------------------------------------------------------------------------------

    def _query(
        self, tree: exp.Expr, outer: Scope | None, ctes: Mapping[str, Relation]
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
        self, tree: exp.Query, outer: Scope | None, ctes: Mapping[str, Relation]
    ) -> tuple[exp.With | None, Mapping[str, Relation]]:
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
            columns = renamed(columns, cte.args["alias"])
            internal = self._fresh()
            known[cte.alias.casefold()] = Relation(cte.alias, internal, columns)
            made.append(exp.CTE(this=query, alias=exp.TableAlias(this=exp.to_identifier(internal))))
        return exp.With(expressions=made), known

    def _fresh(self) -> str:
        self._count += 1
        return f"r{self._count - 1}"

    def _set_operation(
        self, tree: exp.SetOperation, outer: Scope | None, ctes: Mapping[str, Relation]
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
        scope = Scope([], outer=outer)
        query = exp.select(*(exp.column(f"c{number_}") for number_ in range(len(columns)))).from_(
            exp.Subquery(this=made, alias=exp.TableAlias(this=exp.to_identifier(self._fresh())))
        )
        self._finish(tree, query, scope, columns, [None] * len(columns), ctes)
        if with_ is not None:
            query.set("with_", with_)
        return query, columns

    # --- SELECT -------------------------------------------------------------------------------------

    def _select(
        self, tree: exp.Select, outer: Scope | None, ctes: Mapping[str, Relation]
    ) -> tuple[exp.Query, list[OutputColumn]]:
        _only(tree, _SELECT_CLAUSES)
        with_, ctes = self._with(tree, outer, ctes)
        scope = Scope(outer=outer)
        query = exp.Select()
        self._from(tree, query, scope, ctes)
        speaker = Expressions(_Around(self, scope, ctes))
        where = tree.args.get("where")
        if where is not None:
            query.set("where", exp.Where(this=speaker.condition(where.this, "WHERE")))
        items = self._items(tree, scope)
        scope.aliases = _aliases(items)
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
            scope.aliases = _aliases(items)
            _refuse_double_meaning(having, scope)
            query.set("having", exp.Having(this=speaker.condition(having.this, "HAVING")))
        sources = [item.written for item in items]
        self._finish(tree, query, scope, columns, sources, ctes)
        if with_ is not None:
            query.set("with_", with_)
        return query, columns

    def _items(self, tree: exp.Select, scope: Scope) -> list[Item]:
        """The SELECT list with stars expanded: name, and either the user's expression or a column."""
        items: list[Item] = []
        for item in tree.expressions:
            if isinstance(item, exp.Star) or (
                isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
            ):
                star = item if isinstance(item, exp.Star) else item.this
                if any(star.args.values()):
                    raise NeedsSpark("* with EXCEPT")
                qualifier = item.table if isinstance(item, exp.Column) else ""
                items.extend(Item(name, column=typed) for name, typed in expand_star(scope, qualifier))
            elif isinstance(item, exp.Alias):
                items.append(Item(item.alias, item.this))
            elif isinstance(item, exp.Aliases):
                raise NeedsSpark("several aliases")
            else:
                items.append(Item(default_name(item), item))
        return items

    def _outputs(
        self,
        items: list[Item],
        scope: Scope,
        speaker: Expressions,
        *,
        distinct: bool,
    ) -> tuple[list[exp.Expr], list[OutputColumn]]:
        outputs, columns = [], []
        aliases = scope.aliases
        for position, item in enumerate(items):
            # An expression of the list sees the aliases before it.
            scope.aliases = _aliases(items[:position])
            typed = speaker.translate(item.written) if item.written is not None else item.column
            if typed is None:
                raise NeedsSpark("SELECT")
            if item.written is None and typed.node.sql() in scope.zero_keys:
                typed = _without_negative_zero(typed)
            if distinct:
                if not scalar_type(typed.type) and typed.type != NULL:
                    raise NeedsSpark("DISTINCT of nested values")
                typed = _without_negative_zero(typed)
            outputs.append(exp.alias_(typed.node, f"c{position}"))
            columns.append(OutputColumn(item.name, typed.type))
        scope.aliases = aliases
        return outputs, columns

    def _group(
        self,
        tree: exp.Select,
        query: exp.Select,
        scope: Scope,
        speaker: Expressions,
        items: list[Item],
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
                source = chosen(items, item.this)
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
        scope: Scope,
        columns: list[OutputColumn],
        sources: list[exp.Expr | None],
        ctes: Mapping[str, Relation],
    ) -> None:
        """ORDER BY, LIMIT and OFFSET. A name in ORDER BY is first one of the output's."""
        speaker = Expressions(_Around(self, scope, ctes))
        order = tree.args.get("order")
        if order is not None:
            if order.args.get("siblings"):
                raise NeedsSpark("ORDER SIBLINGS BY")
            ordered = []
            for item in order.expressions:
                place = output_place(item, columns, sources)
                if place is None:
                    _refuse_double_meaning(item, scope)
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

    def _from(self, tree: exp.Select, query: exp.Select, scope: Scope, ctes: Mapping[str, Relation]) -> None:
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
        self, node: exp.Expr, scope: Scope, ctes: Mapping[str, Relation]
    ) -> tuple[exp.Expr, Relation]:
        if isinstance(node, exp.Table):
            return self._table(node, ctes)
        if isinstance(node, exp.Subquery):
            extra = [
                key for key, value in node.args.items() if value and key not in ("this", "alias", "joins")
            ]
            if extra:
                raise NeedsSpark(f"{extra[0]} of a derived table")
            query, columns = self._query(node.this, None, ctes)
            columns = renamed(columns, node.args.get("alias"))
            internal = self._fresh()
            made = exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(internal)))
            return made, Relation(node.alias or None, internal, columns)
        raise NeedsSpark(f"FROM {node.key}")

    def _table(self, node: exp.Table, ctes: Mapping[str, Relation]) -> tuple[exp.Expr, Relation]:
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
        return made, Relation(node.alias or node.name, internal, renamed(columns, alias))

    def _join(self, join: exp.Join, scope: Scope, ctes: Mapping[str, Relation]) -> exp.Join:
        known = {"this", "side", "kind", "on"}
        extra = [key for key, value in join.args.items() if value and key not in known]
        if extra:
            raise NeedsSpark(f"join with {extra[0]}")
        side, kind = join.side.upper(), join.kind.upper()
        if (side, kind) not in _JOINS:
            raise NeedsSpark(f"{side} {kind} JOIN")
        node, relation = self._relation(join.this, scope, ctes)
        if join.this.args.get("joins"):
            raise NeedsSpark("nested joins")
        made = exp.Join(this=node, **_JOINS[side, kind])
        inner = kind in ("SEMI", "ANTI")
        probe = Scope([*scope.relations, relation], outer=scope.outer)
        on = join.args.get("on")
        if on is not None:
            made.set("on", Expressions(_Around(self, probe, ctes)).condition(on, "ON"))
        elif kind != "CROSS":
            if side or inner:
                raise NeedsSpark("a join without a condition")
            made = exp.Join(this=node, kind="CROSS")
        if not inner:
            scope.relations.append(relation)
        return made

    def subquery(
        self, tree: exp.Expr, scope: Scope, ctes: Mapping[str, Relation]
    ) -> tuple[exp.Query, list[OutputColumn]]:
        """A query inside of an expression, which sees the names around it."""
        return self._query(tree, scope, ctes)


@dataclass(frozen=True)
class _Around:
    """The surroundings of the expressions of one SELECT."""

    translator: Translator
    scope: Scope
    ctes: Mapping[str, Relation]

    def column(self, node: exp.Column) -> Typed:
        """A column, or an alias that stands for an expression."""
        if node.args.get("db") or node.args.get("catalog"):
            raise NeedsSpark(f"{node.sql()}")
        scope: Scope | None = self.scope
        name, qualifier = node.name.casefold(), node.table.casefold() or None
        while scope is not None:
            found = find(scope, name, qualifier)
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


def _without_negative_zero(typed: Typed) -> Typed:
    """Spark's grouping turns -0.0 into 0.0; so does adding 0."""
    if not pa.types.is_floating(typed.type):
        return typed
    zero = cast_node(number(0), typed.type)
    return Typed(exp.Paren(this=exp.Add(this=typed.node.copy(), expression=zero)), typed.type)


def _refuse_double_meaning(clause: exp.Expr, scope: Scope) -> None:
    """Refuse a name that is an alias of one thing and a column of another: which one counts depends."""
    for node in clause.find_all(exp.Column):
        name = node.name.casefold()
        others = [item for alias, item in scope.aliases if alias.casefold() == name]
        renamed_ = [
            item for item in others if not isinstance(item, exp.Column) or item.name.casefold() != name
        ]
        if renamed_ and not node.table and find(scope, name, None) is not None:
            raise NeedsSpark(f'"{node.name}", which is a column and an alias')


def _aliases(items: list[Item]) -> list[tuple[str, exp.Expr]]:
    return [(item.name, item.written) for item in items if item.written is not None]
