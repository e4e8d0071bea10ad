"""Columns: which one each name means, which exist, and which a query touches.

A scope is what one SELECT can see: its relations, the aliases of its own list, and the scope around it.
Relations whose columns only their source knows make any name valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from velostream.errors import AmbiguousNameError, SqlError, SqlSyntaxError, UnknownNameError, did_you_mean
from velostream.sql.functions import TIME_WINDOWS, functions
from velostream.sql.shapes import OPEN, WINDOW_COLUMNS, Shape

Report = Callable[[SqlError, exp.Expr], None]
Usage = dict[str, set[str] | None]
_SINGLE_GENERATORS = frozenset({"explode", "explode_outer"})
_CLAUSES_WITH_ALIASES = ("group", "having", "qualify", "order", "sort", "cluster", "distribute")
_SEMI = ("SEMI", "ANTI")


@dataclass
class Scope:
    """What one SELECT can see."""

    parent: Scope | None = None
    relations: dict[str, Shape] = field(default_factory=dict)
    merged: set[str] = field(default_factory=set)
    """Columns that USING or NATURAL made one of."""
    extra: set[str] = field(default_factory=set)
    aliases: set[str] = field(default_factory=set)
    visible_aliases: bool = False
    natural: bool = False
    invisible: set[str] = field(default_factory=set)
    """Relations that only conditions see, as the right side of a SEMI join."""

    def named(self, name: str) -> list[tuple[str, Shape]]:
        """Relations that have, or may have, the column."""
        return [(alias, shape) for alias, shape in self.relations.items() if shape.offers(name) is not False]

    def known(self, name: str) -> list[tuple[str, Shape]]:
        """Relations that are known to have the column."""
        return [(alias, shape) for alias, shape in self.relations.items() if shape.offers(name)]

    @property
    def open(self) -> bool:
        """Whether some relation's columns are not known."""
        return any(shape.names is None for shape in self.relations.values())

    def candidates(self) -> Iterable[str]:
        """Every column name there is, for "did you mean"."""
        for shape in self.relations.values():
            yield from shape.names or ()
            yield from shape.hidden
        yield from self.extra
        if self.parent is not None:
            yield from self.parent.candidates()


class Analysis:
    """Walks a bound tree, resolves every column, and records what is used."""

    def __init__(
        self,
        shapes: Mapping[str, Shape],
        report: Report,
        *,
        extra: Iterable[str] = (),
        top: exp.Query | None = None,
        also: Iterable[exp.Expr] = (),
    ) -> None:
        self.shapes = shapes
        self.report = report
        self.usage: Usage = {shape.relation: set() for shape in shapes.values() if shape.relation}
        self.system: dict[str, set[str]] = {}
        """System columns that are used beside `*`, by relation."""
        self._extra = set(extra)
        self._top = top
        self._also = tuple(also)

    # --- queries ----------------------------------------------------------------------------------

    def query(self, node: exp.Expr, outer: Scope | None, ctes: Mapping[str, Shape]) -> Shape:
        """Resolve a query and give the shape of its result."""
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
        for cte in with_.expressions:
            name = cte.alias.lower()
            inner = {**ctes, name: OPEN} if with_.args.get("recursive") else ctes
            shape = self.query(cte.this, outer, inner)
            columns = [column.name for column in cte.args["alias"].columns]
            ctes[name] = Shape(tuple(columns)) if columns else Shape(shape.names)
        return ctes

    def _order_of(self, node: exp.Expr, shape: Shape, outer: Scope | None, ctes: Mapping[str, Shape]) -> None:
        scope = Scope(outer, {"": Shape(shape.names)})
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
        from_ = node.args.get("from_")
        if from_ is not None:
            self._relation(from_.this, scope, ctes)
        for join in node.args.get("joins") or ():
            self._join(join, scope, ctes)
        for lateral in node.args.get("laterals") or ():
            self._lateral(lateral, scope, ctes)
        self._expression(node.args.get("where"), scope, ctes)
        for expression in self._also if node is self._top else ():
            self._expression(expression, scope, ctes)
        for alias in scope.invisible:
            scope.relations.pop(alias, None)
        self._projections(node, scope, ctes)
        scope.visible_aliases = True
        for key in _CLAUSES_WITH_ALIASES:
            self._expression(node.args.get(key), scope, ctes)
        for window in node.args.get("windows") or ():
            self._expression(window, scope, ctes)
        for key in ("limit", "offset"):
            self._expression(node.args.get(key), scope, ctes)
        return self._output(node, scope)

    def _projections(self, node: exp.Select, scope: Scope, ctes: Mapping[str, Shape]) -> None:
        scope.visible_aliases = True
        for projection in node.expressions:
            if isinstance(projection, exp.Star):
                self._star(projection, scope)
            else:
                self._expression(projection, scope, ctes)
            scope.aliases.update(name.lower() for name in _alias_names(projection))

    def expression(self, node: exp.Expr, scope: Scope) -> None:
        """Resolve an expression that stands outside of a query."""
        self._expression(node, scope, {})

    # --- relations --------------------------------------------------------------------------------

    def _relation(self, node: exp.Expr, scope: Scope, ctes: Mapping[str, Shape]) -> None:
        alias, columns = _alias_of(node)
        shape = self._shape(node, scope, ctes)
        if columns:
            shape = Shape(columns, shape.hidden, shape.relation)
            self._use_all(shape)
        if node.args.get("pivots"):
            self._use_all(shape)
            for pivot in node.args["pivots"]:
                self._expression(pivot, Scope(scope.parent, {"": Shape(None)}), ctes)
            alias = next((pivot.alias for pivot in node.args["pivots"] if pivot.alias), alias)
            shape = OPEN
        name = alias or f"#{len(scope.relations)}"
        if name.lower() in scope.relations:
            name = f"{name}#{len(scope.relations)}"
        scope.relations[name.lower()] = shape
        for join in node.args.get("joins") or ():
            self._join(join, scope, ctes)

    def _shape(self, node: exp.Expr, scope: Scope, ctes: Mapping[str, Shape]) -> Shape:
        if isinstance(node, exp.Table):
            if isinstance(node.this, exp.Identifier):
                name = node.name.lower()
                return ctes[name] if name in ctes else self.shapes.get(name, OPEN)
            self._expression(node.this, scope, ctes)
            return OPEN
        if isinstance(node, exp.Subquery):
            if isinstance(node.this, exp.Table):
                inner = Scope(scope.parent)
                self._relation(node.this, inner, ctes)
                return next(iter(inner.relations.values())) if len(inner.relations) == 1 else OPEN
            return Shape(self.query(node, scope.parent, ctes).names)
        if isinstance(node, exp.Lateral):
            return self._lateral_shape(node, scope, ctes)
        if isinstance(node, exp.Values):
            return self._values(node, scope.parent, ctes)
        self._expression(node, scope, ctes)
        return OPEN

    def _join(self, join: exp.Join, scope: Scope, ctes: Mapping[str, Shape]) -> None:
        before = set(scope.relations)
        self._relation(join.this, scope, ctes)
        added = set(scope.relations) - before
        for column in join.args.get("using") or ():
            self._using(column, scope, added)
        if join.method == "NATURAL":
            scope.natural = True
        self._expression(join.args.get("on"), scope, ctes)
        if join.args.get("kind") in _SEMI or join.side in _SEMI:
            scope.invisible |= added

    def _using(self, column: exp.Expr, scope: Scope, added: set[str]) -> None:
        name = column.name
        scope.merged.add(name.lower())
        left = {alias: shape for alias, shape in scope.relations.items() if alias not in added}
        right = {alias: shape for alias, shape in scope.relations.items() if alias in added}
        for side in (left, right):
            if all(shape.offers(name) is False for shape in side.values()):
                names = [known for shape in side.values() for known in shape.names or ()]
                self.report(
                    UnknownNameError(f'unknown column "{name}" in USING', hint=did_you_mean(name, names)),
                    column,
                )
            for shape in side.values():
                if shape.offers(name) is not False:
                    self._use(shape, name)

    def _lateral(self, lateral: exp.Expr, scope: Scope, ctes: Mapping[str, Shape]) -> None:
        alias, _ = _alias_of(lateral)
        shape = self._lateral_shape(lateral, scope, ctes)
        scope.relations[(alias or f"#{len(scope.relations)}").lower()] = shape

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
            self._column(node, scope)
        elif isinstance(node, exp.Query):
            self.query(node, scope, ctes)
        elif isinstance(node, exp.Lambda):
            inner = Scope(scope, {"": Shape(tuple(parameter.name for parameter in node.expressions))})
            self._expression(node.this, inner, ctes)
        elif isinstance(node, exp.Star):
            if not isinstance(node.parent, exp.Count):
                self._star(node, scope)
        elif isinstance(node, exp.Kwarg):
            self._expression(node.expression, scope, ctes)
        elif not isinstance(node, exp.Identifier | exp.DataType):
            for child in node.iter_expressions():
                self._expression(child, scope, ctes)

    def _star(self, node: exp.Star, scope: Scope) -> None:
        for shape in scope.relations.values():
            self._use_all(shape)
        for column in node.args.get("except_") or ():
            if not scope.named(column.name) and not scope.open:
                self.report(_unknown(column.name, scope.candidates()), column)

    def _column(self, node: exp.Column, scope: Scope) -> None:
        parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
        if isinstance(node.this, exp.Star):
            self._qualified_star(node, parts, scope)
            return
        if not parts:
            return
        if len(parts) > 1 and self._qualified(parts, scope):
            return
        if self._plain(parts[0], scope, qualifier=len(parts) > 1):
            return
        name = ".".join(part.name for part in parts)
        if len(parts) > 1:
            aliases = [alias for alias in _visible_relations(scope) if not alias.startswith("#")]
            hint = did_you_mean(parts[0].name, [*aliases, *scope.candidates()])
            if hint is None and aliases:
                hint = f"relations are {', '.join(aliases)}"
            self.report(
                UnknownNameError(f'unknown relation or column "{parts[0].name}" in "{name}"', hint=hint),
                parts[0],
            )
        else:
            self.report(_unknown(name, scope.candidates()), node)

    def _qualified_star(self, node: exp.Column, parts: list[exp.Identifier], scope: Scope) -> None:
        shape = scope.relations.get(parts[0].name.lower()) if parts else None
        if shape is not None:
            self._use_all(shape)
        elif parts and not self._plain(parts[0], scope, qualifier=True):
            aliases = [alias for alias in _visible_relations(scope) if not alias.startswith("#")]
            hint = did_you_mean(parts[0].name, aliases) or f"relations are {', '.join(aliases)}"
            self.report(
                UnknownNameError(f'unknown relation "{parts[0].name}"', hint=hint),
                parts[0],
            )

    def _qualified(self, parts: list[exp.Identifier], scope: Scope) -> bool:
        current: Scope | None = scope
        while current is not None:
            shape = current.relations.get(parts[0].name.lower())
            if shape is not None:
                break
            current = current.parent
        else:
            return False
        name = parts[1].name
        if shape.offers(name) is not False:
            self._use(shape, name)
            return True
        if self._plain(parts[0], scope, qualifier=True, quiet=True):
            return True
        full = ".".join(part.name for part in parts[:2])
        names = [*(shape.names or ()), *shape.hidden]
        hint = did_you_mean(name, names)
        if hint is None and names:
            hint = f'"{parts[0].name}" has {", ".join(names[:12])}'
        self.report(UnknownNameError(f'unknown column "{full}"', hint=hint), parts[1])
        return True

    def _plain(self, part: exp.Identifier, scope: Scope, *, qualifier: bool, quiet: bool = False) -> bool:
        name, folded = part.name, part.name.lower()
        current: Scope | None = scope
        while current is not None:
            known = current.known(name)
            if len(known) > 1 and folded not in current.merged and not current.natural:
                if not quiet:
                    self._ambiguous(part, [alias for alias, _ in known])
                return True
            if known:
                for _, shape in known:
                    self._use(shape, name)
                return True
            if folded in current.extra or (current.visible_aliases and folded in current.aliases):
                return True
            maybe = current.named(name)
            if maybe and not (qualifier and quiet):
                for _, shape in maybe:
                    self._use(shape, name)
                return True
            current = current.parent
        return False

    def _ambiguous(self, part: exp.Identifier, aliases: list[str]) -> None:
        shown = [f"{alias}.{part.name}" for alias in aliases if not alias.startswith("#")]
        hint = f"write {' or '.join(shown)}" if shown else "give the relations aliases"
        self.report(AmbiguousNameError(f'column "{part.name}" is ambiguous', hint=hint), part)

    # --- use and results --------------------------------------------------------------------------

    def _use(self, shape: Shape, name: str) -> None:
        if shape.relation is None:
            return
        used = self.usage.get(shape.relation)
        if used is None:
            if shape.relation in self.usage and name.startswith("_"):
                self.system.setdefault(shape.relation, set()).add(name)
            return
        used.add(_as_declared(shape, name))

    def _use_all(self, shape: Shape) -> None:
        if shape.relation is not None:
            earlier = self.usage.get(shape.relation)
            for name in earlier or ():
                if name.startswith("_"):
                    self.system.setdefault(shape.relation, set()).add(name)
            self.usage[shape.relation] = None

    def _output(self, node: exp.Select, scope: Scope) -> Shape:
        names: list[str] = []
        for projection in node.expressions:
            found = self._projected(projection, scope)
            if found is None:
                return OPEN
            names.extend(found)
        return Shape(tuple(names))

    def _projected(self, node: exp.Expr, scope: Scope) -> list[str] | None:
        if isinstance(node, exp.Star):
            return _star_names(node, list(scope.relations.values()), scope)
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            shape = scope.relations.get(node.table.lower())
            return _star_names(node.this, [shape], scope) if shape is not None else None
        given = _alias_names(node)
        if given:
            return given
        if isinstance(node, exp.Anonymous):
            function = functions().get(node.name.lower())
            if function is not None and function.generator:
                return ["col"] if node.name.lower() in _SINGLE_GENERATORS else None
        return [node.sql("spark")]


def _star_names(star: exp.Expr, shapes: list[Shape], scope: Scope) -> list[str] | None:
    if scope.natural or any(shape.names is None for shape in shapes):
        return None
    removed = {column.name.lower() for column in star.args.get("except_") or ()}
    names: list[str] = []
    merged_seen: set[str] = set()
    for shape in shapes:
        for name in shape.names or ():
            folded = name.lower()
            if folded in removed or folded in merged_seen:
                continue
            if folded in scope.merged:
                merged_seen.add(folded)
            names.append(name)
    return names


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


def _visible_relations(scope: Scope | None) -> Iterable[str]:
    while scope is not None:
        yield from scope.relations
        scope = scope.parent


def _as_declared(shape: Shape, name: str) -> str:
    folded = name.lower()
    return next((known for known in (*(shape.names or ()), *shape.hidden) if known.lower() == folded), name)


def _unknown(name: str, candidates: Iterable[str]) -> UnknownNameError:
    names = list(dict.fromkeys(candidates))
    if name.lower() in WINDOW_COLUMNS:
        return UnknownNameError(f'unknown column "{name}"', hint="it exists where the query has a WINDOW")
    hint = did_you_mean(name, names)
    if hint is None and names:
        hint = f"columns are {', '.join(names[:12])}"
    return UnknownNameError(f'unknown column "{name}"', hint=hint)
