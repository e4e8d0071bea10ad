"""Name resolution of a bound query: which column each name refers to, and which columns are used.

Afterwards joins have ON, `*` over NATURAL or USING joins is expanded, and GROUP BY and HAVING refer to
columns of the input only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import DuplicateNameError, SqlSyntaxError, UnknownNameError, did_you_mean
from velostream.sql.functions import TIME_WINDOWS, functions
from velostream.sql.names import spelling as naming
from velostream.sql.names.relation_columns import OPEN, Shape
from velostream.sql.names.scope import Names, Scope
from velostream.sql.names.spelling import RESULT_FIRST, Visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from velostream.sql.names.scope import Report
from velostream.sql.text.spark_text import SPARK

_SINGLE_GENERATORS = frozenset({"explode", "explode_outer"})
_SEMI = ("SEMI", "ANTI")


class Analysis(Names):
    """Walks a bound tree, resolves every column in place, and records which columns are used."""

    def __init__(
        self,
        shapes: Mapping[str, Shape],
        report: Report,
        *,
        extra: Iterable[str] = (),
        top: exp.Query | None = None,
        also: exp.Expr | None = None,
    ) -> None:
        super().__init__(shapes, report)
        self.names: tuple[str, ...] | None = None
        """The columns of the result, once the query is resolved and where they are known."""
        self._extra = set(extra)
        self._top = top
        self._also = also

    # --- queries ----------------------------------------------------------------------------------

    def query(self, node: exp.Expr, outer: Scope | None, ctes: Mapping[str, Shape]) -> Shape:
        """Resolve a query; returns the shape of its result."""
        ctes = self._with(node, outer, dict(ctes))
        if isinstance(node, exp.Subquery):
            shape = self.query(node.this, outer, ctes)
            self._order_of(node, shape, outer, ctes)
            return shape
        if isinstance(node, exp.SetOperation):
            left = self.query(node.left, outer, ctes)
            self._same_width(node, left, self.query(node.right, outer, ctes))
            self._order_of(node, left, outer, ctes)
            return left
        if isinstance(node, exp.Select):
            return self._select(node, outer, ctes)
        if isinstance(node, exp.Values):
            return self._values(node, outer, ctes)
        if isinstance(node, exp.Table):
            scope = Scope(outer)
            self._relation(node, scope, ctes)
            return Shape(next(iter(scope.relations.values()), OPEN).names)
        return OPEN

    def _same_width(self, node: exp.SetOperation, left: Shape, right: Shape) -> None:
        if left.names is None or right.names is None or node.args.get("by_name"):
            return
        if len(left.names) != len(right.names):
            widths = f"{len(left.names)} and {len(right.names)}"
            message = f"both sides of {node.key.upper()} need equally many columns, they have {widths}"
            self.report(SqlSyntaxError(message), node.right)

    def _with(self, node: exp.Expr, outer: Scope | None, ctes: dict[str, Shape]) -> dict[str, Shape]:
        with_ = node.args.get("with_")
        if with_ is None:
            return ctes
        seen: set[str] = set()
        for cte in with_.expressions:
            name = cte.alias.lower()
            if name in seen:
                message = f'WITH has two queries named "{cte.alias}"'
                self.report(DuplicateNameError(message, hint="give one of them another name"), cte)
            seen.add(name)
            inner = {**ctes, name: OPEN} if with_.args.get("recursive") else ctes
            shape = self.query(cte.this, outer, inner)
            columns = [column.name for column in cte.args["alias"].columns]
            ctes[name] = Shape(tuple(columns) if columns else shape.names, spelled=cte.alias)
        return ctes

    def _order_of(self, node: exp.Expr, shape: Shape, outer: Scope | None, ctes: Mapping[str, Shape]) -> None:
        scope = Scope.of(Shape(shape.names), outer)
        for key in ("order", "limit", "offset", "sort"):
            self._expression(node.args.get(key), scope, ctes)

    def _values(self, node: exp.Values, outer: Scope | None, ctes: Mapping[str, Shape]) -> Shape:
        for row in node.expressions:
            self._expression(row, Scope(outer), ctes)
        alias = node.args.get("alias")
        if alias is not None and alias.columns:
            return Shape(tuple(column.name for column in alias.columns))
        first = node.expressions[0] if node.expressions else None
        width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
        return Shape(tuple(f"col{position + 1}" for position in range(width)))

    def _select(self, node: exp.Select, outer: Scope | None, ctes: Mapping[str, Shape]) -> Shape:
        scope = Scope(outer, extra=set(self._extra) if node is self._top else set())
        group = node.args.get("group")
        for call in group.find_all(exp.Anonymous) if group is not None else ():
            if call.name.lower() in TIME_WINDOWS:  # GROUP BY window(…) makes a column of that name
                scope.extra.add(call.name.lower())
        self._from(node, scope, ctes)
        self._expression(node.args.get("where"), scope, ctes)
        for alias in scope.invisible:
            scope.relations.pop(alias, None)
        names = self._projections(node, scope, ctes)
        scope.replaces = True
        self._expression(node.args.get("group"), scope, ctes)
        naming.resolve_positions(node)
        scope.keys = list(group.expressions) if group is not None else []
        if node is self._top:
            self._expression(self._also, scope, ctes)
        for key in RESULT_FIRST:
            scope.result_first, scope.replaces = True, key == "having"
            self._expression(node.args.get(key), scope, ctes)
        scope.result_first = scope.replaces = False
        for window in node.args.get("windows") or ():
            self._expression(window, scope, ctes)
        for key in ("limit", "offset"):
            self._expression(node.args.get(key), scope, ctes)
        return Shape(tuple(names)) if names is not None else OPEN

    def _projections(self, node: exp.Select, scope: Scope, ctes: Mapping[str, Shape]) -> list[str] | None:
        """Resolve the SELECT list; returns the names of the result, None where they are not known."""
        names: list[str] | None = []
        items: list[exp.Expr] = []
        for position, projection in enumerate(list(node.expressions)):
            found, column = self._projected(projection, scope), isinstance(projection, exp.Column)
            if naming.is_star(projection):
                made = self.star(projection, scope)
            else:
                self._expression(projection, scope, ctes)
                written = found[0] if found and len(found) == 1 else None
                made = [naming.named(node.expressions[position], written, column=column)]
            for item in made:
                for name in _alias_names(item):
                    scope.results.setdefault(name.lower(), []).append(item)
            items.extend(made)
            names = [*names, *found] if names is not None and found is not None else None
        node.set("expressions", items)
        return names

    def expression(self, node: exp.Expr, scope: Scope) -> None:
        """Resolve an expression outside of a query."""
        self._expression(node, scope, {})

    # --- relations --------------------------------------------------------------------------------

    def _from(self, node: exp.Select, scope: Scope, ctes: Mapping[str, Shape]) -> None:
        from_, joins = node.args.get("from_"), node.args.get("joins") or ()
        laterals = node.args.get("laterals") or ()
        scope.stars = any(naming.is_star(each) for each in node.expressions)
        if from_ is None:
            return
        brackets = isinstance(from_.this, exp.Subquery) and isinstance(from_.this.this, exp.Table)
        scope.qualified = bool(joins or laterals or brackets or from_.this.args.get("joins"))
        scope.visible = self._relation(from_.this, scope, ctes)
        if not scope.qualified and naming.hides_input(node, scope.visible, unknown=scope.open):
            scope.qualified = True
            if not scope.written and naming.give_alias(from_.this, "__query"):
                (shape,) = scope.relations.values()
                scope.relations.clear()
                scope.visible = scope.add("__query", "__query", shape)
        for join in joins:
            scope.visible = self._join(join, scope.visible, scope, ctes)
        for lateral in laterals:
            scope.visible += self._lateral(lateral, scope, ctes)

    def _relation(self, node: exp.Expr, scope: Scope, ctes: Mapping[str, Shape]) -> list[Visible]:
        """Add a relation, with its joins; returns its visible columns."""
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and not node.alias:
            visible = self._relation(node.this, scope, ctes)  # brackets around a join hide no names
        else:
            visible = self._one_relation(node, scope, ctes)
        for join in node.args.get("joins") or ():
            visible = self._join(join, visible, scope, ctes)
        return visible

    def _one_relation(self, node: exp.Expr, scope: Scope, ctes: Mapping[str, Shape]) -> list[Visible]:
        alias, columns = _alias_of(node)
        shape = self._shape(node, scope, ctes)
        if shape.spelled and isinstance(node, exp.Table):
            node.set("this", naming.identifier(shape.spelled))
            alias = node.alias_or_name
        if columns:
            shape = Shape(columns, shape.hidden, shape.relation)
            self.use_all(shape)
        if node.args.get("pivots"):
            self.use_all(shape)
            for pivot in node.args["pivots"]:
                self._expression(pivot, Scope.of(Shape(None), scope.parent), ctes)
            alias = next((pivot.alias for pivot in node.args["pivots"] if pivot.alias), alias)
            shape = OPEN
        given = f"__query_{len(scope.relations) + 1}"
        if not alias and scope.qualified and naming.give_alias(node, given):
            alias = given
        key = (alias or f"#{len(scope.relations)}").lower()
        if key in scope.relations:
            key, alias = f"{key}#{len(scope.relations)}", ""
        return scope.add(key, alias, shape)

    def _shape(self, node: exp.Expr, scope: Scope, ctes: Mapping[str, Shape]) -> Shape:
        if isinstance(node, exp.Table):
            if isinstance(node.this, exp.Identifier):
                name = node.name.lower()
                return ctes[name] if name in ctes else self.shapes.get(name, OPEN)
            self._expression(node.this, scope, ctes)
            return OPEN
        if isinstance(node, exp.Subquery):
            if isinstance(node.this, exp.Table):
                node.set("this", _select_all(node.this))
            return Shape(self.query(node, scope.parent, ctes).names)
        if isinstance(node, exp.Lateral):
            return self._lateral_shape(node, scope, ctes)
        if isinstance(node, exp.Values):
            return self._values(node, scope.parent, ctes)
        self._expression(node, scope, ctes)
        return OPEN

    def _join(
        self, join: exp.Join, left: list[Visible], scope: Scope, ctes: Mapping[str, Shape]
    ) -> list[Visible]:
        """Add the relation joined to `left`; returns the visible columns of both."""
        before = set(scope.relations)
        scope.visible = left
        right = self._relation(join.this, scope, ctes)
        added = set(scope.relations) - before
        scope.visible = [*left, *right]
        using = join.args.get("using")
        if using or join.method == "NATURAL":
            scope.visible = self._by_names(join, left, right, scope, added)
        self._expression(join.args.get("on"), scope, ctes)
        if join.args.get("kind") in _SEMI or join.side in _SEMI:
            scope.invisible |= added
            return [each for each in scope.visible if not {key for key, _ in each.parts} & added]
        return scope.visible

    # --- NATURAL and USING --------------------------------------------------------------------------

    def _by_names(
        self, join: exp.Join, left: list[Visible], right: list[Visible], scope: Scope, added: set[str]
    ) -> list[Visible]:
        """Rewrite a NATURAL or USING join with ON; returns the visible columns of both, in Spark's order."""
        scope.by_name = True
        unknown = [key for key, shape in scope.relations.items() if shape.names is None]
        pairs: list[tuple[Visible, Visible]] | None = None
        if join.method != "NATURAL":
            pairs = self._using(join, left, right, scope, added)
        elif not unknown:
            pairs = naming.common(left, right)
        for one, other in pairs or ():
            self.use_parts(scope, one, other)
        if pairs is None or (unknown and scope.stars):
            scope.waiting = True
            return [*left, *right]
        equal = [
            exp.EQ(this=self.expr(one, scope), expression=self.expr(other, scope)) for one, other in pairs
        ]
        join.set("using", None)
        join.set("method", None)
        if equal:
            join.set("on", exp.and_(*equal, copy=False))
        elif join.side or join.kind in _SEMI:
            join.set("on", exp.true())
        else:
            join.set("kind", "CROSS")
        return naming.joined(pairs, left, right, join.side)

    def _using(
        self, join: exp.Join, left: list[Visible], right: list[Visible], scope: Scope, added: set[str]
    ) -> list[tuple[Visible, Visible]] | None:
        """The columns that USING names, of both sides; None where their relations cannot be decided yet."""
        pairs: list[tuple[Visible, Visible]] | None = []
        for column in join.args["using"]:
            found = []
            for side, mine in ((left, False), (right, True)):
                keys = [key for key in scope.relations if (key in added) is mine]
                found.append(self._used_by(column, side, keys, scope))
            one, other = found
            if one is None or other is None:
                pairs = None
            elif pairs is not None:
                pairs.append((one, other))
        return pairs

    def _used_by(
        self, column: exp.Expr, side: list[Visible], keys: list[str], scope: Scope
    ) -> Visible | None:
        name = column.name
        found = next((each for each in side if each.called(name)), None)
        if found is not None:
            return found
        maybe = [key for key in keys if scope.relations[key].offers(name) is None]
        for key in maybe:
            self.use(scope.relations[key], name)
        if not maybe:
            names = [known for key in keys for known in scope.relations[key].names or ()]
            self.report(
                UnknownNameError(f'unknown column "{name}" in USING', hint=did_you_mean(name, names)), column
            )
        if len(maybe) != 1:
            return None
        return Visible(name, ((maybe[0], self.spelled(scope, maybe[0], name)),))

    def _lateral(self, lateral: exp.Expr, scope: Scope, ctes: Mapping[str, Shape]) -> list[Visible]:
        alias, _ = _alias_of(lateral)
        shape = self._lateral_shape(lateral, scope, ctes)
        return scope.add((alias or f"#{len(scope.relations)}").lower(), alias, shape)

    def _lateral_shape(self, node: exp.Expr, scope: Scope, ctes: Mapping[str, Shape]) -> Shape:
        _, columns = _alias_of(node)
        if isinstance(node.this, exp.Subquery | exp.Query):
            shape = self.query(node.this, scope, ctes)
            return Shape(columns or shape.names)
        self._expression(node.this, scope, ctes)
        return Shape(columns) if columns else OPEN

    # --- expressions ------------------------------------------------------------------------------

    def _expression(self, node: exp.Expr | None, scope: Scope, ctes: Mapping[str, Shape]) -> None:
        if node is None:
            return
        if isinstance(node, exp.Column):
            self.column(node, scope)
        elif isinstance(node, exp.Query):
            self.query(node, scope, ctes)
        elif isinstance(node, exp.Lambda):
            inner = Scope.of(Shape(tuple(parameter.name for parameter in node.expressions)), scope)
            inner.local = True
            self._expression(node.this, inner, ctes)
        elif isinstance(node, exp.Star):
            if not isinstance(node.parent, exp.Count):
                naming.spread(node, self.star(node, scope))
        elif isinstance(node, exp.Kwarg):
            self._expression(node.expression, scope, ctes)
        elif not isinstance(node, exp.Identifier | exp.DataType):
            for child in list(node.iter_expressions()):
                self._expression(child, scope, ctes)

    def _projected(self, node: exp.Expr, scope: Scope) -> list[str] | None:
        """The names of the columns that an item of the SELECT list gives."""
        if naming.is_star(node):
            return self.star_names(node, scope)
        given = _alias_names(node)
        if given:
            return given
        if isinstance(node, exp.Anonymous):
            function = functions().get(node.name.lower())
            if function is not None and function.generator:
                return ["col"] if node.name.lower() in _SINGLE_GENERATORS else None
        return [node.sql(SPARK)]


def _select_all(table: exp.Table) -> exp.Select:
    """`a JOIN b` in brackets as the query that it stands for."""
    joins = table.args.get("joins")
    table.set("joins", None)
    select = exp.Select(expressions=[exp.Star()]).from_(table, copy=False)
    select.set("joins", joins)
    return select


def _alias_names(node: exp.Expr) -> list[str]:
    if isinstance(node, exp.Aliases):
        return [part.name for part in node.expressions]
    if isinstance(node, exp.Alias):
        return [node.alias]
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
        return [node.name]
    if isinstance(node, exp.Dot):
        return [node.expression.name]
    return []


def _alias_of(node: exp.Expr) -> tuple[str, tuple[str, ...]]:
    alias = node.args.get("alias")
    if isinstance(alias, exp.TableAlias):
        columns = tuple(column.name for column in alias.columns)
        return alias.name or (node.name if isinstance(node, exp.Table) else ""), columns
    return (node.name if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) else ""), ()
