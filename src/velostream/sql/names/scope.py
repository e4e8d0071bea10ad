"""Scopes: which column each name refers to, and how it is written once resolved.

A scope is what one SELECT can see: its relations, the columns of its own SELECT list, and the enclosing
scope. A relation whose columns are known only to its source accepts any name. A resolved column is written
into the tree in one spelling (`spelling`), so that later steps never compare what users wrote: two columns
are the same when their nodes are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from velostream.errors import AmbiguousNameError, SqlError, UnknownNameError, did_you_mean
from velostream.sql.bind.aggregation import is_aggregate_call
from velostream.sql.names import spelling as naming
from velostream.sql.names.relation_columns import WINDOW_COLUMNS, Shape
from velostream.sql.names.spelling import Visible

Report = Callable[[SqlError, exp.Expr], None]
Usage = dict[str, set[str] | None]


@dataclass
class Scope:
    """The relations and names that one SELECT can see."""

    parent: Scope | None = None
    relations: dict[str, Shape] = field(default_factory=dict)
    """By lowercase alias; `#1` and so on for relations without one."""
    written: dict[str, str] = field(default_factory=dict)
    """The aliases as written in FROM, for relations that have one."""
    visible: list[Visible] = field(default_factory=list)
    """The columns that unqualified names and `*` refer to, in Spark's order."""
    learned: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)
    """The first spelling of each column of a relation with unknown columns, and of each struct field."""
    waiting: bool = False
    """Whether a NATURAL JOIN or USING needs unknown columns: until then a name may be any of them."""
    by_name: bool = False
    """Whether there was a NATURAL JOIN or USING, so that `*` is not simply one relation after the other."""
    extra: set[str] = field(default_factory=set)
    results: dict[str, list[exp.Expr]] = field(default_factory=dict)
    """The columns of the SELECT list so far, by lowercase name."""
    keys: list[exp.Expr] = field(default_factory=list)
    """The expressions of GROUP BY."""
    result_first: bool = False
    replaces: bool = False
    """Whether a name of the result is replaced by its expression, as in GROUP BY and HAVING."""
    qualified: bool = False
    """Whether columns are written with their relation."""
    local: bool = False
    """Whether it holds the parameters of a lambda; its parent is then the same SELECT."""
    stars: bool = False
    invisible: set[str] = field(default_factory=set)
    """Relations that only conditions can see, such as the right side of a SEMI join."""

    @classmethod
    def of(cls, shape: Shape, parent: Scope | None = None, alias: str = "") -> Scope:
        """A scope with one relation."""
        scope = cls(parent)
        scope.visible = scope.add(alias.lower(), alias, shape)
        return scope

    def add(self, key: str, alias: str, shape: Shape) -> list[Visible]:
        """Add a relation; returns its visible columns."""
        self.relations[key] = shape
        if alias:
            self.written[key] = alias
        return [Visible(name, ((key, name),)) for name in shape.names or ()]

    def found(self, name: str) -> list[Visible]:
        """The columns of that name, including system columns."""
        folded = name.lower()
        hidden = [
            Visible(known, ((key, known),))
            for key, shape in self.relations.items()
            for known in shape.hidden
            if known.lower() == folded
        ]
        return [*(each for each in self.visible if each.called(name)), *hidden]

    def trusted(self, name: str) -> list[str]:
        """Relations with unknown columns, which may have this one."""
        return [key for key, shape in self.relations.items() if shape.offers(name) is None]

    @property
    def open(self) -> bool:
        """Whether some relation's columns are unknown."""
        return any(shape.names is None for shape in self.relations.values())

    def candidates(self) -> Iterable[str]:
        """Every known column name, for "did you mean"."""
        for shape in self.relations.values():
            yield from shape.names or ()
            yield from shape.hidden
        yield from self.extra
        if self.parent is not None:
            yield from self.parent.candidates()


class Names:
    """Resolves the columns of a tree in place, and records which columns of relations are used."""

    def __init__(self, shapes: Mapping[str, Shape], report: Report) -> None:
        self.shapes = shapes
        self.report = report
        self.usage: Usage = {shape.relation: set() for shape in shapes.values() if shape.relation}

    def column(self, node: exp.Column, scope: Scope) -> None:
        """Resolve a column, or report why it cannot be resolved."""
        parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
        if isinstance(node.this, exp.Star):
            naming.spread(node, self.star(node, scope))
            return
        if not parts:
            return
        if len(parts) > 1 and self._qualified(node, parts, scope):
            return
        if self._plain(node, parts, scope):
            return
        name = ".".join(part.name for part in parts)
        if len(parts) > 1:
            aliases = [alias for alias in _visible_relations(scope) if _has_name(alias)]
            hint = did_you_mean(parts[0].name, [*aliases, *scope.candidates()])
            if hint is None and aliases:
                hint = f"relations are {', '.join(aliases)}"
            self.report(
                UnknownNameError(f'unknown relation or column "{parts[0].name}" in "{name}"', hint=hint),
                parts[0],
            )
        else:
            self.report(_unknown(name, scope.candidates()), node)

    def _qualified(self, node: exp.Column, parts: Sequence[exp.Identifier], scope: Scope) -> bool:
        key = parts[0].name.lower()
        owner: Scope | None = scope
        while owner is not None and key not in owner.relations:
            owner = owner.parent
        if owner is None:
            return False
        shape, name = owner.relations[key], parts[1].name
        # `a.b` is column b of relation a, or, where that has no such column, field b of a column a.
        if shape.offers(name) is not False:
            self._write(node, key, [name, *(part.name for part in parts[2:])], scope, owner)
            return True
        if self._plain(node, parts, scope, quiet=True):
            return True
        full = ".".join(part.name for part in parts[:2])
        names = [*(shape.names or ()), *shape.hidden]
        hint = did_you_mean(name, names)
        if hint is None and names:
            hint = f'"{parts[0].name}" has {", ".join(names[:12])}'
        self.report(UnknownNameError(f'unknown column "{full}"', hint=hint), parts[1])
        return True

    def _plain(
        self, node: exp.Column, parts: Sequence[exp.Identifier], scope: Scope, *, quiet: bool = False
    ) -> bool:
        """Resolve a name without a relation in front; `quiet` where the first part may be a relation.

        Scopes are searched from the inside out. Within one, the order is Spark's: in HAVING, QUALIFY and
        ORDER BY a column of the result first (but not inside an aggregate, nor a grouped column); then
        columns of relations; then columns of the result; then, unchecked, a relation with unknown columns.
        """
        name, folded = parts[0].name, parts[0].name.lower()
        fields = [part.name for part in parts[1:]]
        owner: Scope | None = scope
        while owner is not None:
            # A column of an unknown relation that was named before with its relation is that column again:
            # otherwise the same name could resolve to two relations within one query.
            near = _same_select(scope, owner)
            found = owner.found(name)
            known = [key for key in owner.trusted(name) if (key, (folded,)) in owner.learned]
            if not found and len(known) == 1:
                found = [Visible(name, ((known[0], self.spelled(owner, known[0], name)),))]
            first = near and owner.result_first and not _aggregated(node) and not self._is_key(found, owner)
            if first and self._result(node, fields, owner):
                return True
            if len(found) > 1 and not owner.waiting:
                if not quiet:
                    self.ambiguous(name, parts[0], [key for each in found for key, _ in each.parts])
                return True
            if found:
                self._find(node, found, fields, scope, owner)
                return True
            if folded in owner.extra:
                naming.spell(node, [folded, *(each.lower() for each in fields)])
                return True
            if folded in owner.results and (not near or self._result(node, fields, owner)):
                return True
            if not quiet and self._trust(node, [name, *fields], scope, owner):
                return True
            owner = owner.parent
        return False

    def _is_key(self, found: list[Visible], scope: Scope) -> bool:
        """Whether it is a column that the SELECT groups by: in HAVING it precedes a column of the result."""
        return scope.replaces and len(found) == 1 and self.expr(found[0], scope) in scope.keys

    def _result(self, node: exp.Column, fields: list[str], scope: Scope) -> bool:
        """Resolve a name to a column of the SELECT list; False when it has none, or different ones."""
        items = scope.results.get(node.parts[0].name.lower(), [])
        if not items or any(item != items[0] for item in items):
            return False
        item = items[0]
        if scope.replaces:
            value = naming.grouped(item) if isinstance(node.parent, exp.Group) else item.unalias().copy()
            naming.put(node, value, fields)
        elif isinstance(item, exp.Column):
            naming.put(node, item.copy(), fields)
        else:
            naming.spell(node, [item.alias_or_name or node.parts[0].name, *fields])
        return True

    def _find(
        self, node: exp.Column, found: list[Visible], fields: list[str], scope: Scope, owner: Scope
    ) -> None:
        if len(found) > 1:  # decided when all columns are known
            self.use_parts(owner, *found)
        elif len(found[0].parts) > 1:
            self.use_parts(owner, found[0])
            naming.put(node, self.expr(found[0], owner), fields)
        else:
            key, name = found[0].parts[0]
            self._write(node, key, [name, *fields], scope, owner)

    def _trust(self, node: exp.Column, names: list[str], scope: Scope, owner: Scope) -> bool:
        """Accept a name as a column of a relation with unknown columns; False without such a relation.

        With several such relations the owner is open, so the column counts as used in each of them.
        """
        maybe = owner.trusted(names[0])
        if len(maybe) == 1:
            self._write(node, maybe[0], names, scope, owner)
        elif maybe:
            for key in maybe:
                self.use(owner.relations[key], self.spelled(owner, "", names[0]))
            naming.spell(node, [self.spelled(owner, "", names[0]), *names[1:]])
        return bool(maybe)

    def _write(self, node: exp.Column, key: str, names: list[str], scope: Scope, owner: Scope) -> None:
        """Write a column in the spelling of its relation, with its alias where it is needed."""
        shape = owner.relations[key]
        names = [self.spelled(owner, key, *names[: place + 1]) for place in range(len(names))]
        if naming.stands_for_star(node):
            self.use_all(shape)
        self.use(shape, names[0])
        alias = owner.written.get(key)
        # An inner relation of the same alias hides the outer one; then only the bare name can be written.
        near = _same_select(scope, owner)
        hidden = not near and any(key in each.relations for each in _between(scope, owner))
        if alias is None or hidden:
            naming.spell(node, names)
        elif owner.qualified or not near or (len(names) > 1 and names[0].lower() == key):
            naming.spell(node, [alias, *names])
        else:
            naming.spell(node, names)

    def spelled(self, scope: Scope, key: str, *path: str) -> str:
        """The spelling of a column or struct field: as declared, or else as first written."""
        folded = tuple(part.lower() for part in path)
        if len(path) == 1 and key in scope.relations:
            shape = scope.relations[key]
            for known in (*(shape.names or ()), *shape.hidden):
                if known.lower() == folded[0]:
                    return known
        return scope.learned.setdefault((key, folded), path[-1])

    def ambiguous(self, name: str, place: exp.Expr, keys: list[str]) -> None:
        """Report a name that several relations have."""
        shown = [f"{key}.{name}" for key in keys if _has_name(key)]
        whole = len(shown) == len(keys)
        hint = (
            f"write {' or '.join(shown)}" if whole else "give the relations aliases, and write one before it"
        )
        self.report(AmbiguousNameError(f'column "{name}" is ambiguous', hint=hint), place)

    # --- * ------------------------------------------------------------------------------------------

    def star(self, node: exp.Expr, scope: Scope) -> list[exp.Expr]:
        """Resolve `*` or `t.*`; returns the columns that it stands for, or itself where it may stay."""
        star = node if isinstance(node, exp.Star) else node.this
        visible = scope.visible
        if isinstance(node, exp.Column):
            key = node.parts[0].name.lower()
            shape = scope.relations.get(key)
            if shape is None:
                self._star_of_struct(node, scope)
                return [node]
            self.use_all(shape)
            naming.spell(node, [scope.written.get(key, node.parts[0].name), "*"])
            node.set("this", star)
            visible = naming.of_relation(key, shape.names or (), visible)
        else:
            for shape in scope.relations.values():
                self.use_all(shape)
        removed = {column.name.lower() for column in star.args.get("except_") or ()}
        for column in star.args.get("except_") or ():
            if not scope.found(column.name) and not scope.open:
                self.report(_unknown(column.name, scope.candidates()), column)
            spelled = next((each.name for each in visible if each.name.lower() == column.name.lower()), None)
            if spelled is not None:
                column.replace(exp.to_identifier(spelled, quoted=True))
        # Only after NATURAL or USING does `*` differ from what
        # Spark would expand, and only if all columns are known.
        if not scope.by_name or scope.waiting or scope.open:
            return [node]
        return [
            naming.from_star(naming.named(self.expr(each, scope), each.name, column=True))
            for each in visible
            if each.name.lower() not in removed
        ]

    def _star_of_struct(self, node: exp.Column, scope: Scope) -> None:
        (part, *_) = [each for each in node.parts if isinstance(each, exp.Identifier)]
        holder = exp.Paren(this=exp.column(part.copy()))
        if not self._plain(holder.this, [part], scope):
            aliases = [alias for alias in _visible_relations(scope) if _has_name(alias)]
            hint = did_you_mean(part.name, aliases) or f"relations are {', '.join(aliases)}"
            self.report(UnknownNameError(f'unknown relation "{part.name}"', hint=hint), part)

    def star_names(self, node: exp.Expr, scope: Scope) -> list[str] | None:
        """The names that `*` or `t.*` stands for; None where they are not known."""
        star, visible = node if isinstance(node, exp.Star) else node.this, scope.visible
        shapes = list(scope.relations.values())
        if isinstance(node, exp.Column):
            key = node.parts[0].name.lower()
            if key not in scope.relations:
                return None
            shapes = [scope.relations[key]]
            visible = naming.of_relation(key, shapes[0].names or (), visible)
        if scope.waiting or any(shape.names is None for shape in shapes):
            return None
        removed = {column.name.lower() for column in star.args.get("except_") or ()}
        return [each.name for each in visible if each.name.lower() not in removed]

    # --- use ----------------------------------------------------------------------------------------

    def use(self, shape: Shape, name: str) -> None:
        """Record that a column of a relation is used."""
        if shape.relation is None:
            return
        used = self.usage.get(shape.relation)
        if used is not None:
            used.add(name)

    def use_all(self, shape: Shape) -> None:
        """Record that all columns of a relation are used."""
        if shape.relation is not None:
            self.usage[shape.relation] = None

    def use_parts(self, scope: Scope, *columns: Visible) -> None:
        """Record that the columns that these consist of are used."""
        for key, name in (part for column in columns for part in column.parts):
            self.use(scope.relations[key], name)

    def expr(self, column: Visible, scope: Scope) -> exp.Expr:
        """A visible column as an expression over the columns of relations."""
        parts: list[exp.Expr] = []
        for key, name in column.parts:
            alias = scope.written.get(key) if scope.qualified else None
            parts.append(naming.column([alias, name] if alias else [name]))
        return parts[0] if len(parts) == 1 else naming.merged(parts)


def _same_select(scope: Scope, owner: Scope) -> bool:
    """Whether `owner` is the scope of the same SELECT: only lambdas are in between."""
    while scope is not owner and scope.local and scope.parent is not None:
        scope = scope.parent
    return scope is owner


def _between(scope: Scope, owner: Scope) -> Iterable[Scope]:
    current: Scope | None = scope
    while current is not None and current is not owner:
        yield current
        current = current.parent


def _aggregated(node: exp.Expr) -> bool:
    """Whether the node is inside an aggregate, whose argument refers to the input."""
    parent = node.parent
    while parent is not None and not isinstance(parent, exp.Query):
        if is_aggregate_call(parent):
            return True
        parent = parent.parent
    return False


def _has_name(key: str) -> bool:
    """Whether a relation has a name that a user can write."""
    return "#" not in key and not key.startswith("__")


def _visible_relations(scope: Scope | None) -> Iterable[str]:
    while scope is not None:
        yield from scope.relations
        scope = scope.parent


def _unknown(name: str, candidates: Iterable[str]) -> UnknownNameError:
    names = list(dict.fromkeys(candidates))
    if name.lower() in WINDOW_COLUMNS:
        return UnknownNameError(f'unknown column "{name}"', hint="it exists where the query has a WINDOW")
    hint = did_you_mean(name, names)
    if hint is None and names:
        hint = f"columns are {', '.join(names[:12])}"
    return UnknownNameError(f'unknown column "{name}"', hint=hint)
