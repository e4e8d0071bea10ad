"""Binds CREATE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from velostream.errors import (
    DuplicateNameError,
    PropertyError,
    SqlError,
    SqlSyntaxError,
    TypeMismatchError,
    UnknownNameError,
    did_you_mean,
)
from velostream.model import statements as model
from velostream.model.columns import HIDDEN, OURS, reserved
from velostream.model.options import CommonOptions
from velostream.model.uri import Uri
from velostream.sql.bind import properties as props
from velostream.sql.bind.parts import Result, StatementBinder
from velostream.sql.bind.queries import check_source, check_time_column
from velostream.sql.bind.relations import connector_of, take_with, uri_properties
from velostream.sql.known_relations import ConnectorInfo, Relation, RelationKind
from velostream.sql.parse.dialect import WITH
from velostream.sql.text.node_locations import anchor
from velostream.sql.types import arrow_type, parse_columns
from velostream.sql.windows.clauses import interval_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from velostream.sql.parse import syntax as raw


class CreateBinder(StatementBinder):
    """CREATE TABLE, STREAM, SOURCE and VIEW."""

    def create(self, node: raw.RawCreate) -> Result:
        """CREATE TABLE, STREAM, SOURCE or VIEW."""
        self.check_name(node.name)
        by_hand = node.query is None and node.relation is None
        columns, key = self.columns(node.schema.columns, node.schema.key, by_hand=by_hand)
        options: dict[str, Any] = {
            "or_replace": node.or_replace,
            "if_not_exists": node.if_not_exists,
            **self.common,
        }
        if node.kind is model.ObjectKind.SOURCE:
            return self._create_source(node, columns, key, options)
        if node.query is None:
            return self._create_by_hand(node, columns, key, options)
        if node.kind is model.ObjectKind.TABLE:
            return self._create_table(node, node.query, columns, key, options)
        if columns:
            self.context.report(
                SqlSyntaxError(f"a {node.kind} takes its columns from its query", location=node.name.location)
            )
        if node.kind is model.ObjectKind.STREAM:
            return self._create_stream(node, node.query, options)
        return self._create_view(node, node.query, options)

    def check_name(self, name: raw.Name) -> None:
        """Report a name that could be created but not be used afterwards."""
        refusals = {
            "names that begin with __ are ours": name.text.startswith(HIDDEN),
            f'"{name.text}" cannot be a name: with / in it, FROM takes it for a path': "/" in name.text,
            "a name cannot be empty": not name.text.strip(),
        }
        for message in (message for message, wrong in refusals.items() if wrong):
            self.context.report(SqlSyntaxError(message, location=name.location))

    def _refuse_ours(self, names: Iterable[str] | None, at: raw.Name) -> None:
        for name in filter(reserved, names or ()):
            self.context.report(
                SqlSyntaxError(
                    f'column "{name}" would be taken for one of ours',
                    hint="give it another name; those that begin with __ are ours, and "
                    + ", ".join(sorted(OURS)),
                    location=at.location,
                )
            )

    def _create_table(
        self,
        node: raw.RawCreate,
        query: raw.RawQuery,
        columns: tuple[model.ColumnDef, ...],
        key: tuple[str, ...],
        options: dict[str, Any],
    ) -> Result:
        bound = self.query(query, node.properties)
        self.refuse_sink(bound)
        if columns and bound.output is not None and len(columns) != len(bound.output):
            self.context.report(
                SqlSyntaxError(
                    f'table "{node.name.text}" and its query have different columns: '
                    f"{len(columns)} are declared, {len(bound.output)} are selected",
                    location=node.name.location,
                )
            )
        self._refuse_doubles(bound.output if not columns else None, node.name)
        names = tuple(column.name for column in columns) or bound.output
        key = self._key(key, bound.properties, names, node.name)
        statement = model.CreateTable(node.name.text, columns, key, bound.query, bound.properties, **options)
        relation = Relation(RelationKind.TABLE, node.name.text, columns or None, key, names=names)
        return Result(statement, relation)

    def _create_by_hand(
        self,
        node: raw.RawCreate,
        columns: tuple[model.ColumnDef, ...],
        key: tuple[str, ...],
        options: dict[str, Any],
    ) -> Result:
        found = self._only_common(node.properties)
        key = self._key(key, found, tuple(column.name for column in columns), node.name)
        statement = model.CreateTable(node.name.text, columns, key, None, found, **options)
        return Result(statement, Relation(RelationKind.TABLE, node.name.text, columns, key, by_hand=True))

    def _create_stream(self, node: raw.RawCreate, query: raw.RawQuery, options: dict[str, Any]) -> Result:
        sink, address = self._stream_sink(query, node.properties)
        bound = self.query(query, node.properties, sink=sink, sink_address=address)
        self._refuse_doubles(bound.output, node.name)
        statement = model.CreateStream(node.name.text, bound.query, bound.properties, **options)
        return Result(statement, Relation(RelationKind.STREAM, node.name.text, names=bound.output))

    def _refuse_doubles(self, names: tuple[str, ...] | None, at: raw.Name) -> None:
        self._refuse_ours(names, at)
        folded = [name.lower() for name in names or ()]
        for position, name in enumerate(folded):
            if name in folded[:position]:
                self.context.report(
                    DuplicateNameError(
                        f'"{at.text}" would have two columns "{name}"',
                        hint="give one of them another name with AS",
                        location=at.location,
                    )
                )
                return

    def _stream_sink(
        self, query: raw.RawQuery, trailing: raw.RawWith | None
    ) -> tuple[ConnectorInfo | None, Mapping[str, str]]:
        clauses = [trailing]
        for part in query.tree.walk():
            clause = part.args.get(WITH)
            clauses.append(clause.value if clause is not None else None)
        for with_ in clauses:
            for item in with_.properties if with_ is not None else ():
                if item.key == "sink":
                    uri = Uri(item.value)
                    connector = self._connector_at(uri, item)
                    return connector, connector.parse(uri) if connector is not None else {}
        return None, {}

    def _connector_at(self, uri: Uri, item: raw.RawProperty) -> ConnectorInfo | None:
        if not uri.scheme or "://" not in uri.text:
            self.context.report(
                PropertyError(
                    f'property "sink" cannot be "{item.value}"',
                    hint="it is a URI such as kafka://topic or file:///path.jsonl",
                    location=item.value_location,
                )
            )
            return None
        try:
            return connector_of(self.context, uri)
        except SqlError as error:
            self.context.report(error.at(item.value_location))
            return None

    def _create_view(self, node: raw.RawCreate, query: raw.RawQuery, options: dict[str, Any]) -> Result:
        bound = self.query(query, node.properties)
        self._refuse_doubles(bound.output, node.name)
        for wrong, found in (("WINDOW", bound.query.window), ("EMIT", bound.query.emit.explicit)):
            if found:
                self.context.report(
                    SqlSyntaxError(
                        f"a view cannot have {wrong}",
                        hint="make it a table or a stream",
                        location=node.name.location,
                    )
                )
        if bound.properties:
            self.context.report(
                SqlSyntaxError("a view has no properties of its own", location=node.name.location)
            )
        statement = model.CreateView(node.name.text, bound.query, **options)
        return Result(
            statement, Relation(RelationKind.VIEW, node.name.text, names=bound.output, view=bound.query)
        )

    def _create_source(
        self,
        node: raw.RawCreate,
        columns: tuple[model.ColumnDef, ...],
        key: tuple[str, ...],
        options: dict[str, Any],
    ) -> Result:
        relation = node.relation or exp.Table()
        anchor(relation, self.context.piece)
        uri, connector = self.uri_of(relation)
        checked = props.Checked(self.context.report)
        written = props.as_mapping(take_with(relation) or node.properties, checked)
        if connector is not None:
            self.known_properties(written, checked, connector)
            inherited = uri_properties(self.context, uri, connector, relation)
            check_source(connector, {**written, **inherited}, checked, self.context, None, None)
        declared = columns or self._schema_property(written, connector)
        found = self._discovered(node, uri, connector, written, declared)
        if declared:
            check_time_column(written, declared, checked, self.context)
        key = self._key(key, written, tuple(column.name for column in declared) or None, node.name)
        statement = model.CreateSource(
            node.name.text, uri, declared, key, self._watermark(node.schema, declared), written, **options
        )
        return Result(
            statement,
            Relation(
                RelationKind.SOURCE, node.name.text, declared or None, key, source=statement, names=found
            ),
        )

    def _discovered(
        self,
        node: raw.RawCreate,
        uri: Uri,
        connector: ConnectorInfo | None,
        written: dict[str, str],
        declared: tuple[model.ColumnDef, ...],
    ) -> tuple[str, ...] | None:
        if connector is None:
            return None
        given = {**written, **connector.parse(uri)} if not self.context.errors else written
        at = node.name.location
        return self.context.discovered(
            model.SourceRef("", uri, given, declared, declared_in=node.name.text, location=at)
        )

    def _schema_property(
        self, written: dict[str, str], connector: ConnectorInfo | None
    ) -> tuple[model.ColumnDef, ...]:
        text = written.get("schema")
        if not text or connector is None or "schema" in props.own_names(connector.options):
            return ()
        try:
            return parse_columns(text)
        except SqlError as error:
            self.context.report(PropertyError(f'property "schema" is not a list of columns: {error.message}'))
            return ()

    def _watermark(
        self, schema: raw.RawSchema, columns: tuple[model.ColumnDef, ...]
    ) -> model.Watermark | None:
        if schema.watermark is None:
            return None
        name, expression = schema.watermark
        anchor(expression, self.context.piece)
        if columns and name.text.lower() not in {column.name.lower() for column in columns}:
            hint = did_you_mean(name.text, [column.name for column in columns])
            self.context.report(
                UnknownNameError(f'unknown column "{name.text}"', hint=hint, location=name.location)
            )
        try:
            if isinstance(expression, exp.Column) and expression.name.lower() == name.text.lower():
                return model.Watermark(name.text, interval_duration(_no_interval()))
            if not isinstance(expression, exp.Sub) or expression.this.name.lower() != name.text.lower():
                raise ValueError("expected the column minus an interval")
            return model.Watermark(name.text, interval_duration(expression.expression))
        except ValueError as exc:
            hint = f"write WATERMARK FOR {name.text} AS {name.text} - INTERVAL '5' SECOND"
            self.context.report(SqlSyntaxError(f"watermark cannot be read: {exc}", hint=hint), expression)
            return None

    def columns(
        self, declared: Iterable[raw.RawColumn], names: tuple[raw.Name, ...], *, by_hand: bool
    ) -> tuple[tuple[model.ColumnDef, ...], tuple[str, ...]]:
        """The declared columns, and the key: that of the columns, or these names."""
        columns: list[model.ColumnDef] = []
        for column in declared:
            self._refuse_ours([column.name.text], column.name)
            if any(column.name.text.lower() == other.name.lower() for other in columns):
                self.context.report(
                    DuplicateNameError(
                        f'column "{column.name.text}" stands twice', location=column.name.location
                    )
                )
            try:
                kind = arrow_type(column.type)
            except TypeMismatchError as error:
                self.context.report(error.at(column.name.location))
                continue
            default = self._default(column, by_hand=by_hand)
            columns.append(
                model.ColumnDef(column.name.text, kind, column.primary_key, column.name.location, default)
            )
        inline = tuple(column.name for column in columns if column.primary_key)
        if inline and names:
            self.context.report(SqlSyntaxError("PRIMARY KEY is declared twice", location=names[0].location))
        by_name = {column.name.lower(): column.name for column in columns}
        key = []
        for name in names:
            if name.text.lower() not in by_name:
                hint = did_you_mean(name.text, by_name.values())
                self.context.report(
                    UnknownNameError(f'unknown column "{name.text}"', hint=hint, location=name.location)
                )
            key.append(by_name.get(name.text.lower(), name.text))
        return tuple(columns), inline or tuple(key)

    def _default(self, column: raw.RawColumn, *, by_hand: bool) -> exp.Expr | None:
        """The constant after DEFAULT."""
        if column.default is None:
            return None
        default = self.expression(column.default, None)
        if not by_hand:
            self.context.report(
                SqlSyntaxError(
                    f'column "{column.name.text}" has a DEFAULT: only a table filled by hand may have one',
                    hint="write COALESCE(column, value) in the query",
                    location=column.name.location,
                )
            )
        elif not _constant(default):
            self.context.report(
                SqlSyntaxError(
                    f'DEFAULT of column "{column.name.text}" is not a constant',
                    hint="write a number, a text in quotes, TRUE, FALSE, NULL, DATE '…' or TIMESTAMP '…'",
                ),
                default,
            )
        return default

    def _key(
        self, key: tuple[str, ...], found: dict[str, str], names: tuple[str, ...] | None, at: raw.Name
    ) -> tuple[str, ...]:
        given = tuple(part.strip() for part in found.get("key", "").split(",") if part.strip())
        if key or not given:
            return key
        by_name = {name.lower(): name for name in names or ()}
        for name in given:
            if names is not None and name.lower() not in by_name:
                hint = did_you_mean(name, names)
                self.context.report(
                    UnknownNameError(
                        f'unknown column "{name}" in property "key"', hint=hint, location=at.location
                    )
                )
        return tuple(by_name.get(name.lower(), name) for name in given)

    def _only_common(self, with_: raw.RawWith | None) -> dict[str, str]:
        checked = props.Checked(self.context.report)
        written = props.as_mapping(with_, checked)
        for name in [name for name in written if name not in props.COMMON]:
            self.context.report(props.unknown(name, sorted(props.COMMON), checked.places[name]))
            del written[name]
        props.validate(CommonOptions, written, checked, fallback=self.context.location, about="the table")
        return written


def _constant(value: exp.Expr) -> bool:
    inner = value.this if isinstance(value, exp.Neg | exp.Cast) else value
    return isinstance(inner, exp.Literal | exp.Boolean | exp.Null)


def _no_interval() -> exp.Interval:
    return exp.Interval(this=exp.Literal.string("0"), unit=exp.Var(this="SECOND"))
