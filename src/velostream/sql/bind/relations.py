"""FROM: resolves names to sources, tables and streams, and expands views."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import (
    SqlSyntaxError,
    UnknownNameError,
    UnsafeError,
    UnsupportedError,
    VelostreamError,
    did_you_mean,
)
from velostream.model.statements import Query, SourceRef
from velostream.model.uri import Uri
from velostream.sql.bind import properties as props
from velostream.sql.functions import UNSAFE, table_functions
from velostream.sql.known_relations import ConnectorInfo, Relation, RelationKind
from velostream.sql.names.relation_columns import Shape, source_shape
from velostream.sql.names.spelling import SOURCE
from velostream.sql.parse import elsewhere
from velostream.sql.parse.dialect import WITH
from velostream.sql.parse.syntax import RawWith
from velostream.sql.text.script import URI_MARK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from velostream.sql.bind.context import Context

_FILE_TABLES = frozenset(
    {
        "csv",
        "json",
        "parquet",
        "orc",
        "text",
        "avro",
        "delta",
        "binaryfile",
        "jdbc",
        "xml",
        "libsvm",
        "iceberg",
    }
)
_SHORT_NAME = re.compile(r"[A-Za-z_]\w*\Z")
BUILT_IN = {"dead_letters": Relation(RelationKind.TABLE, "dead_letters")}
"""Tables that always exist."""


@dataclass
class Outside:
    """A source as a FROM clause names it, before it becomes a SourceRef."""

    ref: SourceRef
    connector: ConnectorInfo | None
    declared: Relation | None
    with_: RawWith | None
    own: dict[str, str] = field(default_factory=dict)
    """Properties that this statement gives it."""
    inherited: dict[str, str] = field(default_factory=dict)
    """Properties of its CREATE SOURCE and its URI."""
    expanded: bool = False
    """Whether it came from a view, which has checked it already."""


@dataclass
class Relations:
    """All relations in the FROM clauses of one query."""

    context: Context
    outside: list[Outside] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    views: list[str] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    trailing: RawWith | None = None
    """The statement's WITH, where it follows the name of a table."""

    def resolve(self, tree: exp.Expr) -> exp.Expr:
        """Replace every relation of the tree by a plain table, and views by subqueries."""
        nodes = list(tree.find_all(exp.Table, bfs=False))
        nodes.sort(key=lambda node: (self._start(node), id(node)))
        for node in nodes:
            try:
                self._resolve_one(node)
            except VelostreamError as error:
                self.context.report(error, node)
        return tree

    def _start(self, node: exp.Table) -> int:
        place = self.context.place(node)
        return place.start if place else 0

    def _resolve_one(self, node: exp.Table) -> None:
        with_ = take_with(node)
        if not isinstance(node.this, exp.Identifier):
            self._function(node, with_)
            return
        name = node.name
        uri = self._written_uri(node)
        if uri is not None:
            self._uri(node, uri, with_, _short_name(uri))
            return
        _refuse_path(node, self.context.connectors.schemes())
        if name.lower() in visible_ctes(node):
            _refuse_with(with_, f'"{name}" is a query of this statement')
            return
        self._named(node, name, with_)

    def _written_uri(self, node: exp.Table) -> Uri | None:
        name = node.name
        if name.startswith(URI_MARK):
            return Uri(self.context.piece.uris[int(name[1:])])
        if "://" in name and not node.args.get("db"):
            return Uri(name)
        return None

    def _function(self, node: exp.Table, with_: RawWith | None) -> None:
        call = node.this
        if not isinstance(call, exp.Anonymous):
            raise SqlSyntaxError("expected a relation: a URI, a name, a function or a subquery")
        name = call.name.lower()
        connector = self.context.connectors.by_function(name)
        if connector is not None:
            uri = function_uri(call, connector)
            node.set("this", exp.to_identifier("__source").update_positions(call))
            self._uri(node, uri, with_, _short_name(uri))
            return
        if name in UNSAFE:
            raise UnsafeError(f'function "{call.name}" is not allowed', detail=UNSAFE[name])
        if name not in table_functions():
            known = [*table_functions(), *self.context.connectors.functions()]
            raise UnknownNameError(
                f'unknown function "{call.name}" in FROM',
                hint=elsewhere.reader(name) or did_you_mean(name, known),
            )
        _refuse_with(with_, f"{call.name} is a function")

    def _uri(self, node: exp.Table, uri: Uri, with_: RawWith | None, short: str | None) -> None:
        connector = connector_of(self.context, uri)
        self._add_outside(node, uri, connector, with_, None, short)

    def _named(self, node: exp.Table, name: str, with_: RawWith | None) -> None:
        relation = self.context.lookup(name)
        if relation is None:
            raise UnknownNameError(
                f'unknown table, stream or source "{name}"',
                hint=did_you_mean(name, self.context.names())
                or elsewhere.source(name, frozenset(self.context.connectors.schemes())),
            )
        if relation.kind is RelationKind.SOURCE and relation.source is not None:
            connector = connector_of(self.context, relation.source.uri)
            self._add_outside(node, relation.source.uri, connector, with_, relation, relation.name)
        elif relation.kind is RelationKind.VIEW and relation.view is not None:
            _refuse_with(with_, f'"{name}" is a view')
            self._expand(node, relation, relation.view)
        else:
            self._catalogued(node, relation)
            if with_ is not None and with_.end != self.context.end:
                _refuse_with(with_, f'"{name}" is a {relation.kind}')
            self.trailing = with_ or self.trailing

    def _catalogued(self, node: exp.Table, relation: Relation) -> None:
        kept = self.streams if relation.kind is RelationKind.STREAM else self.tables
        if relation.name not in kept:
            kept.append(relation.name)
        if node.name != relation.name:
            node.this.set("this", relation.name)
        self.shapes[relation.name.lower()] = Shape(relation.column_names, (), relation.name)

    def _add_outside(
        self,
        node: exp.Table,
        uri: Uri,
        connector: ConnectorInfo | None,
        with_: RawWith | None,
        declared: Relation | None,
        short: str | None,
    ) -> None:
        source_id = f"{SOURCE}{len(self.outside) + 1}"
        alias = node.alias or (short if short and short.lower() not in self._aliases() else None)
        ref = SourceRef(
            id=source_id,
            uri=uri,
            columns=declared.source.columns if declared and declared.source else (),
            watermark=declared.source.watermark if declared and declared.source else None,
            declared_in=declared.name if declared else None,
            alias=alias or None,
            location=self.context.place(node),
            system_columns=connector.system_columns if connector else (),
        )
        outside = Outside(ref, connector, declared, with_)
        if declared and declared.source:
            outside.inherited.update(declared.source.properties)
        outside.inherited.update(uri_properties(self.context, uri, connector, node))
        self.outside.append(outside)
        node.this.set("this", source_id)
        node.this.set("quoted", False)
        if alias and not node.alias:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
        names = declared.column_names if declared else None
        self.shapes[source_id] = source_shape(names, source_id, ref.system_columns)

    def _aliases(self) -> set[str]:
        return {outside.ref.alias.lower() for outside in self.outside if outside.ref.alias}

    def _expand(self, node: exp.Table, relation: Relation, view: Query) -> None:
        if view.window is not None:
            raise UnsupportedError(
                f'view "{relation.name}" has a WINDOW and cannot be expanded',
                hint="make it a table: CREATE TABLE … AS",
            )
        tree = view.tree.copy()
        renumbered = {}
        for ref in view.sources:
            source_id = f"{SOURCE}{len(self.outside) + 1}"
            renumbered[ref.id] = source_id
            connector = self.context.connectors.by_scheme(ref.uri.scheme)
            outside = Outside(replace(ref, id=source_id), connector, None, None, expanded=True)
            outside.inherited.update(ref.properties)
            self.outside.append(outside)
            names = tuple(column.name for column in ref.columns) or None
            self.shapes[source_id] = source_shape(names, source_id, ref.system_columns)
        for inner in list(tree.find_all(exp.Table)):
            inner.meta["expanded"] = True
            if inner.name in renumbered:
                inner.this.set("this", renumbered[inner.name])
        self._adopt(view)
        self.views.append(relation.name)
        for child in tree.walk():
            child.meta.pop("anchored", None)
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(relation.name))
        subquery = exp.Subquery(this=tree, alias=alias)
        for key in ("joins", "pivots", "sample", "laterals"):
            if node.args.get(key):
                subquery.set(key, node.args[key])
        node.replace(subquery)

    def _adopt(self, view: Query) -> None:
        for name in view.tables:
            relation = self.context.lookup(name) or BUILT_IN.get(name.lower())
            if name not in self.tables:
                self.tables.append(name)
            self.shapes.setdefault(name.lower(), Shape(relation.column_names if relation else None, (), name))
        for name in view.streams:
            relation = self.context.lookup(name)
            if name not in self.streams:
                self.streams.append(name)
            self.shapes.setdefault(name.lower(), Shape(relation.column_names if relation else None, (), name))


def visible_ctes(node: exp.Expr) -> set[str]:
    """Lowercase names of the CTEs that are visible at this relation."""
    names: set[str] = set()
    child: exp.Expr = node
    parent = node.parent
    while parent is not None:
        with_ = parent.args.get("with_")
        if isinstance(parent, exp.With):
            position = child.index or 0
            visible = parent.expressions[: position + (1 if parent.args.get("recursive") else 0)]
            names.update(cte.alias.lower() for cte in visible)
        elif isinstance(with_, exp.With) and with_ is not child:
            names.update(cte.alias.lower() for cte in with_.expressions)
        child, parent = parent, parent.parent
    return names


def take_with(node: exp.Table) -> RawWith | None:
    """The WITH of a relation, taken off the tree."""
    clause = node.args.pop(WITH, None)
    return clause.value if clause is not None and not isinstance(clause, RawWith) else clause


def connector_of(context: Context, uri: Uri) -> ConnectorInfo:
    """The connector of a URI; the error names the nearest scheme."""
    connector = context.connectors.by_scheme(uri.scheme)
    if connector is None:
        raise UnknownNameError(
            f'no connector for "{uri.scheme}://"',
            hint=did_you_mean(uri.scheme, context.connectors.schemes())
            or f"connectors are {', '.join(sorted(context.connectors.names()))}",
        )
    return connector


def uri_properties(
    context: Context, uri: Uri, connector: ConnectorInfo | None, node: exp.Expr
) -> dict[str, str]:
    """The properties in the URI itself; a URI that the connector cannot parse is reported."""
    if connector is None:
        return {}
    try:
        found = dict(connector.parse(uri))
    except VelostreamError as error:
        context.report(error, node)
        return {}
    except ValueError as exc:
        context.report(SqlSyntaxError(f"{connector.name} URI cannot be read: {exc}"), node)
        return {}
    known = props.names_of(connector.options) | props.COMMON
    if connector.options.model_config.get("extra") != "allow":
        for name in [name for name in found if name not in known]:
            context.report(props.unknown(name, known, context.place(node), f"{connector.name} URI"))
            del found[name]
    return found


def function_uri(call: exp.Anonymous, connector: ConnectorInfo) -> Uri:
    """The URI that `kafka_topic('orders')` stands for."""
    argument = call.expressions[0] if len(call.expressions) == 1 else None
    if not isinstance(argument, exp.Literal) or not argument.is_string:
        raise SqlSyntaxError(f"{call.name} takes one text in quotes", hint=f"write {call.name}('…')")
    if "://" in argument.name:
        return Uri(argument.name)
    return connector.uri_of(argument.name)


def _short_name(uri: Uri) -> str | None:
    return uri.rest if _SHORT_NAME.match(uri.rest) else None


def _refuse_path(node: exp.Table, schemes: Iterable[str]) -> None:
    database = node.args.get("db")
    if database is not None and database.name.lower() in _FILE_TABLES:
        raise UnsafeError(
            f"{database.name}.`{node.name}` is not allowed",
            detail="it would read any file that the server can",
            hint="name the file as a source: FROM file:///path",
        )
    refuse_parts(node, schemes)
    if "/" in node.name:
        raise SqlSyntaxError(f'"{node.name}" is not a URI', hint=f"write file://{node.name}")


def refuse_parts(node: exp.Table, schemes: Iterable[str]) -> None:
    """Refuse a name with dots in it."""
    if len(node.parts) > 1:
        written = ".".join(part.name for part in node.parts)
        raise UnknownNameError(
            f'"{written}" has several parts; relations have one name',
            hint=elsewhere.source(written, frozenset(schemes)),
        )


def _refuse_with(with_: RawWith | None, reason: str) -> None:
    if with_ is not None:
        raise SqlSyntaxError(f"WITH must follow a source, and {reason}", location=with_.location)
