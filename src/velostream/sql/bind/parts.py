"""Parts of every statement: queries, expressions and URIs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from velostream.errors import PropertyError, SqlError, SqlSyntaxError, UnknownNameError
from velostream.model.uri import Uri
from velostream.sql.bind import properties as props
from velostream.sql.bind.queries import Bound, QueryBinder
from velostream.sql.bind.relations import Relations, connector_of, function_uri
from velostream.sql.functions import HEADER_FUNCTIONS
from velostream.sql.names.relation_columns import Shape
from velostream.sql.names.resolution import Analysis
from velostream.sql.names.scope import Scope
from velostream.sql.parse import elsewhere, structure
from velostream.sql.parse import syntax as raw
from velostream.sql.text.node_locations import anchor
from velostream.sql.text.script import URI_MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from velostream.model import statements as model
    from velostream.sql.bind.context import Context
    from velostream.sql.known_relations import ConnectorInfo, Relation


@dataclass(frozen=True)
class Result:
    """A bound statement and, for CREATE, the relation that it creates."""

    statement: model.Statement
    relation: Relation | None = None


class StatementBinder:
    """Binds one statement; its errors are added to the context."""

    def __init__(self, context: Context, statement: raw.Raw) -> None:
        self.context = context
        self.common: dict[str, Any] = {"text": statement.text, "location": statement.location}

    def query(
        self,
        query: raw.RawQuery,
        trailing: raw.RawWith | None,
        *,
        sink: ConnectorInfo | None = None,
        sink_address: Mapping[str, str] | None = None,
        parameters: bool = False,
        answered: bool = False,
    ) -> Bound:
        """Bind a query of the statement; `answered`: over tables, it is answered once and not maintained.

        `sink_address` are the properties of the sink that do not stand at the end of the statement.
        """
        binder = QueryBinder(
            self.context, sink, sink_address or {}, trailing, parameters_allowed=parameters, answered=answered
        )
        bound = binder.bind(query)
        self._check_headers(bound.query, sink)
        return bound

    def _check_headers(self, query: model.Query, sink: ConnectorInfo | None) -> None:
        for call in query.tree.find_all(exp.Anonymous):
            if call.name.lower() in HEADER_FUNCTIONS and not (query.sources or query.streams or sink):
                self.context.report(
                    SqlSyntaxError(f'function "{call.name}" needs a source whose records have headers'), call
                )

    def refuse_sink(self, bound: Bound) -> None:
        """Report the property "sink" where it has no meaning."""
        if "sink" in bound.properties:
            self.context.report(
                PropertyError(
                    'property "sink" belongs to CREATE STREAM', hint="or write INSERT INTO uri SELECT …"
                )
            )

    def expression(self, node: exp.Expr, relation: Relation | None) -> exp.Expr:
        """An expression outside of a query, with the columns of the table in scope, if any."""
        anchor(node, self.context.piece)
        node = structure.rewrite(node)
        structure.check(node, self.context)
        node.parent = None
        holder = exp.Paren(this=node)
        relations = Relations(self.context)
        relations.resolve(holder)
        structure.quote_names(holder)
        if relations.outside:
            self.context.report(
                SqlSyntaxError("a source cannot be read here", hint="make it a table first"), node
            )
        scope = Scope()
        if relation is not None:
            structure.warn_of_quotes(holder, relation.column_names or (), self.context)
            scope = Scope.of(Shape(relation.column_names, (), relation.name), alias=relation.name)
        analysis = Analysis(relations.shapes, self.context.report)
        analysis.expression(holder, scope)
        bound = holder.this
        bound.parent = None
        return bound  # type: ignore[no-any-return]

    def uri_of(self, relation: exp.Table) -> tuple[Uri, ConnectorInfo | None]:
        """The URI of CREATE SOURCE and INSERT INTO, and its connector if there is one."""
        name = relation.name
        if isinstance(relation.this, exp.Anonymous):
            connector = self.context.connectors.by_function(relation.this.name.lower())
            if connector is None:
                raise UnknownNameError(
                    f'unknown function "{relation.this.name}"', location=self.context.place(relation)
                )
            return function_uri(relation.this, connector), connector
        if name.startswith(URI_MARK):
            uri = Uri(self.context.piece.uris[int(name[1:])])
        elif "://" in name:
            uri = Uri(name)
        else:
            written = ".".join(part.name for part in relation.parts)
            schemes = frozenset(self.context.connectors.schemes())
            raise SqlSyntaxError(
                f'"{written}" is not a URI',
                hint=elsewhere.source(written, schemes) or "write one such as kafka://topic",
                location=self.context.place(relation),
            )
        try:
            return uri, connector_of(self.context, uri)
        except SqlError as error:
            self.context.report(error, relation)
            return uri, None

    def known_properties(
        self, written: dict[str, str], checked: props.Checked, connector: ConnectorInfo
    ) -> None:
        """Report, and remove, properties that neither the connector nor sources in general have."""
        valid = props.names_of(connector.options) | props.COMMON
        for name in [name for name in written if name not in valid]:
            if connector.options.model_config.get("extra") != "allow":
                self.context.report(props.unknown(name, sorted(valid), checked.places[name]))
                del written[name]
