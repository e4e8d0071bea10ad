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
from velostream.serving.sql.duckdb.expressions import Expressions, without_negative_zero
from velostream.serving.sql.duckdb.scopes import OutputColumn, Relation, Scope, expand_star, find, renamed
from velostream.serving.sql.duckdb.types import NULL, NeedsSpark, scalar_type

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
_RELATION_PARTS = frozenset({"this", "alias", "joins"})


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
        sql, columns = self._query(tree, Scope())
        return Translation(sql, tuple(columns), self._tables, self._bound)

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

    def subquery(self, tree: exp.Expr, scope: Scope) -> tuple[str, list[OutputColumn]]:
        """A query inside of an expression, which sees the names around it."""
        return self._query(tree, Scope(ctes=scope.ctes, outer=scope))

    def _query(self, tree: exp.Expr, scope: Scope) -> tuple[str, list[OutputColumn]]:
        """A query and its columns; `scope` is its own, still without relations."""
        if isinstance(tree, exp.Subquery):
            if any(value for key, value in tree.args.items() if key != "this"):
                raise NeedsSpark("a parenthesised query with clauses of its own")
            return self._query(tree.this, scope)
        if not isinstance(tree, exp.Select | exp.SetOperation):
            raise NeedsSpark(tree.key.upper())
        _only(tree, _SELECT_CLAUSES if isinstance(tree, exp.Select) else _SET_CLAUSES)
        with_ = self._with(tree, scope)
        sql, columns = (
            self._select(tree, scope) if isinstance(tree, exp.Select) else self._set_operation(tree, scope)
        )
        return with_ + sql, columns

    def _with(self, tree: exp.Query, scope: Scope) -> str:
        clause = tree.args.get("with_")
        if clause is None:
            return ""
        if clause.args.get("recursive"):
            raise NeedsSpark("WITH RECURSIVE")
        made = []
        for cte in clause.expressions:
            _only(cte, frozenset({"this", "alias"}))
            sql, columns = self._query(cte.this, Scope(ctes=scope.ctes, outer=scope.outer))
            relation = Relation(cte.alias, self._fresh(), renamed(columns, cte.args["alias"]))
            scope.ctes = {**scope.ctes, cte.alias.casefold(): relation}
            made.append(f"{relation.internal} AS ({sql})")
        return f"WITH {', '.join(made)} "

    def _fresh(self) -> str:
        self._count += 1
        return f"r{self._count - 1}"

    def _set_operation(self, tree: exp.SetOperation, scope: Scope) -> tuple[str, list[OutputColumn]]:
        (left, columns), (right, others) = (
            self._query(side, Scope(ctes=scope.ctes, outer=scope.outer)) for side in (tree.left, tree.right)
        )
        name, distinct = tree.key.upper(), tree.args.get("distinct")
        kinds = [column.type for column in columns]
        if kinds != [column.type for column in others]:
            raise NeedsSpark(f"{name} of different types")
        if distinct and any(pa.types.is_floating(kind) or not scalar_type(kind) for kind in kinds):
            raise NeedsSpark(f"{name} DISTINCT of floating or nested values")
        outputs = ", ".join(f"c{place}" for place in range(len(columns)))
        both = f"({left}) {name}{'' if distinct else ' ALL'} ({right})"
        end = self._end(tree, scope, columns, [None] * len(columns))
        return f"SELECT {outputs} FROM ({both}) AS {self._fresh()}{end}", columns

    # --- SELECT -------------------------------------------------------------------------------------

    def _select(self, tree: exp.Select, scope: Scope) -> tuple[str, list[OutputColumn]]:
        from_ = self._from(tree, scope)
        speaker = Expressions(self, scope)
        where, having = tree.args.get("where"), tree.args.get("having")
        before = f" WHERE {speaker.condition(where.this, 'WHERE')}" if where is not None else ""
        items = _items(tree, scope)
        scope.aliases = _aliases(items)
        group = _group(tree, scope, speaker, items)
        distinct = tree.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise NeedsSpark("DISTINCT ON")
        outputs, columns = _outputs(items, scope, speaker, distinct=distinct is not None)
        after = ""
        if having is not None:
            _refuse_double_meaning(having, scope)
            after = f" HAVING {speaker.condition(having.this, 'HAVING')}"
        end = self._end(tree, scope, columns, [item.written for item in items])
        chosen_ = f"SELECT {'DISTINCT ' if distinct is not None else ''}{', '.join(outputs)}"
        return f"{chosen_}{from_}{before}{group}{after}{end}", columns

    def _end(
        self, tree: exp.Query, scope: Scope, columns: list[OutputColumn], sources: list[exp.Expr | None]
    ) -> str:
        """ORDER BY, LIMIT and OFFSET. A name in ORDER BY is looked up among the output columns first."""
        speaker = Expressions(self, scope)

        def place(item: exp.Expr) -> int | None:
            found = output_place(item, columns, sources)
            if found is None:
                _refuse_double_meaning(item, scope)
            return found

        order = tree.args.get("order")
        made = f" {speaker.order(order, place)}" if order is not None else ""
        for key, kind in (("limit", exp.Limit), ("offset", exp.Offset)):
            clause = tree.args.get(key)
            if clause is None:
                continue
            if not isinstance(clause, kind):
                raise NeedsSpark(key.upper())
            _only(clause, frozenset({"expression"}))
            amount = speaker.translate(clause.expression)
            if not isinstance(amount.literal, int):
                raise NeedsSpark(f"{key.upper()} that is not a number")
            made += f" {key.upper()} {amount.sql}"
        return made

    # --- FROM ---------------------------------------------------------------------------------------

    def _from(self, tree: exp.Select, scope: Scope) -> str:
        start = tree.args.get("from_")
        if start is None:
            if tree.args.get("joins"):
                raise NeedsSpark("joins without FROM")
            return ""
        sql, relation = self._relation(start.this, scope)
        scope.relations.append(relation)
        joins = [*(start.this.args.get("joins") or []), *(tree.args.get("joins") or [])]
        return "".join([f" FROM {sql}", *(self._join(join, scope) for join in joins)])

    def _relation(self, node: exp.Expr, scope: Scope) -> tuple[str, Relation]:
        if not isinstance(node, exp.Table | exp.Subquery):
            raise NeedsSpark(f"FROM {node.key}")
        extra = [key for key, value in node.args.items() if value and key not in _RELATION_PARTS]
        if extra:
            raise NeedsSpark(f"FROM with {extra[0]}")
        if isinstance(node, exp.Table):
            internal = self._fresh()
            sql, name, columns = self._table(node, scope)
        else:
            query, columns = self._query(node.this, Scope(ctes=scope.ctes))
            internal = self._fresh()
            sql, name = f"({query})", None
        known = renamed(columns, node.args.get("alias"))
        return f"{sql} AS {internal}", Relation(node.alias or name, internal, known)

    def _table(self, node: exp.Table, scope: Scope) -> tuple[str, str, list[OutputColumn]]:
        if not isinstance(node.this, exp.Identifier):
            raise NeedsSpark(f"FROM with {node.this.key}")
        cte = scope.ctes.get(node.name.casefold())
        if cte is not None:
            return cte.internal, node.name, cte.columns
        found = self._schemas.get(node.name.casefold())
        if found is None:
            raise NeedsSpark(f'relation "{node.name}"')
        name, schema = found
        base = next((key for key, value in self._tables.items() if value == name), f"t{len(self._tables)}")
        self._tables[base] = name
        return base, node.name, [OutputColumn(each.name, each.type) for each in schema]

    def _join(self, join: exp.Join, scope: Scope) -> str:
        extra = [
            key for key, value in join.args.items() if value and key not in ("this", "side", "kind", "on")
        ]
        if extra:
            raise NeedsSpark(f"join with {extra[0]}")
        side, kind, on = join.side.upper(), join.kind.upper(), join.args.get("on")
        written = _JOINS.get((side, kind))
        if written is None:
            raise NeedsSpark(f"{side} {kind} JOIN")
        sql, relation = self._relation(join.this, scope)
        if join.this.args.get("joins"):
            raise NeedsSpark("nested joins")
        condition = ""
        if on is not None:
            both = Scope([*scope.relations, relation], scope.ctes, scope.outer)
            condition = f" ON {Expressions(self, both).condition(on, 'ON')}"
        elif written == "JOIN":
            written = "CROSS JOIN"
        elif written != "CROSS JOIN":
            raise NeedsSpark("a join without a condition")
        if kind not in ("SEMI", "ANTI"):
            scope.relations.append(relation)
        return f" {written} {sql}{condition}"


_JOINS: dict[tuple[str, str], str] = {
    ("", ""): "JOIN",
    ("", "INNER"): "JOIN",
    ("", "CROSS"): "CROSS JOIN",
    ("LEFT", ""): "LEFT JOIN",
    ("LEFT", "OUTER"): "LEFT JOIN",
    ("RIGHT", ""): "RIGHT JOIN",
    ("RIGHT", "OUTER"): "RIGHT JOIN",
    ("FULL", ""): "FULL JOIN",
    ("FULL", "OUTER"): "FULL JOIN",
    ("LEFT", "SEMI"): "SEMI JOIN",
    ("LEFT", "ANTI"): "ANTI JOIN",
    ("", "SEMI"): "SEMI JOIN",
    ("", "ANTI"): "ANTI JOIN",
}


# --- the SELECT list and GROUP BY -------------------------------------------------------------------


def _items(tree: exp.Select, scope: Scope) -> list[Item]:
    """The SELECT list with stars expanded: name, and either the user's expression or a column."""
    items: list[Item] = []
    for item in tree.expressions:
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
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
    items: list[Item], scope: Scope, speaker: Expressions, *, distinct: bool
) -> tuple[list[str], list[OutputColumn]]:
    outputs, columns = [], []
    for position, item in enumerate(items):
        # An expression of the list sees the aliases before it.
        scope.aliases = _aliases(items[:position])
        value = speaker.translate(item.written) if item.written is not None else item.column
        if value is None:
            raise NeedsSpark("SELECT")
        if distinct and not scalar_type(value.type) and value.type != NULL:
            raise NeedsSpark("DISTINCT of nested values")
        if distinct or (item.written is None and value.sql in scope.zero_keys):
            value = without_negative_zero(value)
        outputs.append(f"{value.sql} AS c{position}")
        columns.append(OutputColumn(item.name, value.type))
    scope.aliases = _aliases(items)
    return outputs, columns


def _group(tree: exp.Select, scope: Scope, speaker: Expressions, items: list[Item]) -> str:
    group = tree.args.get("group")
    if group is None:
        return ""
    extra = [key for key, value in group.args.items() if value and key != "expressions"]
    if extra:
        raise NeedsSpark(f"GROUP BY {extra[0]}")
    keys, floating = [], set()
    for item in group.expressions:
        by_place = isinstance(item, exp.Literal) and not item.is_string
        value = speaker.translate(chosen(items, item.this) if by_place else item)
        if not scalar_type(value.type):
            raise NeedsSpark("GROUP BY of nested values")
        if pa.types.is_floating(value.type):
            floating.add(value.sql)
        keys.append(without_negative_zero(value).sql)
    scope.zero_keys = floating
    return f" GROUP BY {', '.join(keys)}"


def _aliases(items: list[Item]) -> list[tuple[str, exp.Expr]]:
    return [(item.name, item.written) for item in items if item.written is not None]


def _refuse_double_meaning(clause: exp.Expr, scope: Scope) -> None:
    """Refuse a name that is both an alias and another column: which one Spark uses depends on the clause."""
    for node in clause.find_all(exp.Column):
        name = node.name.casefold()
        others = [
            item
            for item in scope.aliased(name)
            if not isinstance(item, exp.Column) or item.name.casefold() != name
        ]
        if others and not node.table and find(scope, name, None) is not None:
            raise NeedsSpark(f'"{node.name}", which is a column and an alias')


def _only(tree: exp.Expr, known: frozenset[str]) -> None:
    for key, value in tree.args.items():
        if value and key not in known:
            raise NeedsSpark(key.strip("_").upper())
