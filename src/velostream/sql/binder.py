"""Binds statements: from what was written to the frozen objects that everything below works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from velostream.errors import (
    DuplicateNameError,
    PropertyError,
    SqlError,
    SqlSyntaxError,
    TableError,
    TypeMismatchError,
    UnknownNameError,
    VelostreamError,
    did_you_mean,
)
from velostream.model import statements as model
from velostream.model.options import CommonOptions
from velostream.model.uri import Uri
from velostream.sql import properties as props
from velostream.sql import structure
from velostream.sql import syntax as raw
from velostream.sql.catalog import ConnectorInfo, Relation, RelationKind
from velostream.sql.functions import HEADER_FUNCTIONS
from velostream.sql.places import anchor
from velostream.sql.queries import Bound, QueryBinder, check_source
from velostream.sql.relations import Relations, connector_of, function_uri, take_with, uri_properties
from velostream.sql.scopes import Analysis, Scope
from velostream.sql.script import URI_MARK
from velostream.sql.shapes import Shape, source_shape
from velostream.sql.types import arrow_type, parse_columns
from velostream.sql.windows import interval_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from velostream.sql.context import Context


@dataclass(frozen=True)
class Result:
    """A bound statement and, for CREATE, the relation that it makes."""

    statement: model.Statement
    relation: Relation | None = None


class Binder:
    """Binds one statement; everything wrong with it goes to the context's errors."""

    def __init__(self, context: Context, statement: raw.Raw) -> None:
        self.context = context
        self.common: dict[str, Any] = {"text": statement.text, "location": statement.location}

    def bind(self, statement: raw.Raw) -> Result:
        """The bound statement; worthless when errors were reported."""
        bind: Callable[[Any], Result] = _BINDERS[type(statement)].__get__(self)
        return bind(statement)

    # --- CREATE -----------------------------------------------------------------------------------

    def create(self, node: raw.RawCreate) -> Result:
        """CREATE TABLE, STREAM, SOURCE or VIEW."""
        if node.name.text.startswith("__"):
            self.context.report(
                SqlSyntaxError("names that begin with __ are ours", location=node.name.location)
            )
        columns, key = self._columns(node.schema)
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

    def _create_table(
        self,
        node: raw.RawCreate,
        query: raw.RawQuery,
        columns: tuple[model.ColumnDef, ...],
        key: tuple[str, ...],
        options: dict[str, Any],
    ) -> Result:
        bound = self._query(query, node.properties)
        self._refuse_sink(bound)
        if columns and bound.output is not None and len(columns) != len(bound.output):
            self.context.report(
                SqlSyntaxError(
                    f'table "{node.name.text}" declares {len(columns)} columns, its query gives {len(bound.output)}',
                    location=node.name.location,
                )
            )
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
        bound = self._query(query, node.properties, sink=self._stream_sink(query, node.properties))
        statement = model.CreateStream(node.name.text, bound.query, bound.properties, **options)
        return Result(statement, Relation(RelationKind.STREAM, node.name.text, names=bound.output))

    def _stream_sink(self, query: raw.RawQuery, trailing: raw.RawWith | None) -> ConnectorInfo | None:
        clauses = [trailing]
        for part in query.tree.walk():
            clause = part.args.get("velo_with")
            clauses.append(clause.value if clause is not None else None)
        for with_ in clauses:
            for item in with_.properties if with_ is not None else ():
                if item.key == "sink":
                    return self._connector_at(Uri(item.value), item)
        return None

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
        bound = self._query(query, node.properties)
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
        relation = node.relation
        assert relation is not None
        anchor(relation, self.context.piece)
        uri, connector = self._uri_of(relation)
        checked = props.Checked(self.context.report)
        written = props.as_mapping(take_with(relation) or node.properties, checked)
        if connector is not None:
            self._known_properties(written, checked, connector)
            inherited = uri_properties(self.context, uri, connector, relation)
            check_source(connector, {**written, **inherited}, checked, self.context, None, None)
        declared = columns or self._schema_property(written, connector)
        key = self._key(key, written, tuple(column.name for column in declared) or None, node.name)
        statement = model.CreateSource(
            node.name.text, uri, declared, key, self._watermark(node.schema, declared), written, **options
        )
        return Result(
            statement, Relation(RelationKind.SOURCE, node.name.text, declared or None, key, source=statement)
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

    def _known_properties(
        self, written: dict[str, str], checked: props.Checked, connector: ConnectorInfo
    ) -> None:
        valid = props.names_of(connector.options) | props.COMMON
        for name in [name for name in written if name not in valid]:
            if connector.options.model_config.get("extra") != "allow":
                self.context.report(props.unknown(name, sorted(valid), checked.places[name].location))
                del written[name]

    def _uri_of(self, relation: exp.Table) -> tuple[Uri, ConnectorInfo | None]:
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
            raise SqlSyntaxError(
                f'"{name}" is not a URI',
                hint="write one such as kafka://topic",
                location=self.context.place(relation),
            )
        try:
            return uri, connector_of(self.context, uri)
        except SqlError as error:
            self.context.report(error, relation)
            return uri, None

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

    def _columns(self, schema: raw.RawSchema) -> tuple[tuple[model.ColumnDef, ...], tuple[str, ...]]:
        columns: list[model.ColumnDef] = []
        for column in schema.columns:
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
            columns.append(model.ColumnDef(column.name.text, kind, column.primary_key, column.name.location))
        inline = tuple(column.name for column in columns if column.primary_key)
        if inline and schema.key:
            self.context.report(SqlSyntaxError("PRIMARY KEY stands twice", location=schema.key[0].location))
        by_name = {column.name.lower(): column.name for column in columns}
        key = []
        for name in schema.key:
            if name.text.lower() not in by_name:
                hint = did_you_mean(name.text, by_name.values())
                self.context.report(
                    UnknownNameError(f'unknown column "{name.text}"', hint=hint, location=name.location)
                )
            key.append(by_name.get(name.text.lower(), name.text))
        return tuple(columns), inline or tuple(key)

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

    # --- changing tables --------------------------------------------------------------------------

    def insert(self, node: raw.RawInsert) -> Result:
        """INSERT INTO a table filled by hand, or into a sink."""
        anchor(node.target, self.context.piece)
        target = node.target
        name = target.name
        if isinstance(target.this, exp.Anonymous) or name.startswith(URI_MARK) or "://" in name:
            return self._insert_into_sink(node)
        relation = self._by_hand(
            raw.Name(name, self.context.place(target) or self.context.location), "INSERT INTO"
        )
        columns = self._insert_columns(node, relation)
        if node.query is not None:
            bound = self._query(node.query, node.properties, parameters=True)
            self._refuse_sink(bound)
            if bound.output is not None and columns is not None and len(bound.output) != len(columns):
                self._wrong_width(relation, len(columns), len(bound.output), node.location)
            statement = model.InsertInto(
                relation.name, self._names(node), (), bound.query, node.or_replace, **self.common
            )
            return Result(statement)
        rows = tuple(self._row(row, relation, columns) for row in node.rows)
        return Result(
            model.InsertInto(relation.name, self._names(node), rows, None, node.or_replace, **self.common)
        )

    def _names(self, node: raw.RawInsert) -> tuple[str, ...]:
        return tuple(name.text for name in node.columns)

    def _insert_columns(self, node: raw.RawInsert, relation: Relation) -> tuple[str, ...] | None:
        known = relation.column_names
        for position, name in enumerate(node.columns):
            if known is not None and name.text.lower() not in {column.lower() for column in known}:
                self._unknown_column(name, known)
            if any(name.text.lower() == other.text.lower() for other in node.columns[:position]):
                self.context.report(
                    DuplicateNameError(f'column "{name.text}" stands twice', location=name.location)
                )
        return self._names(node) or known

    def _unknown_column(self, name: raw.Name, known: Iterable[str]) -> None:
        self.context.report(
            UnknownNameError(
                f'unknown column "{name.text}"', hint=did_you_mean(name.text, known), location=name.location
            )
        )

    def _row(
        self, row: tuple[exp.Expr, ...], relation: Relation, columns: tuple[str, ...] | None
    ) -> tuple[exp.Expr, ...]:
        bound = tuple(self._expression(value, None) for value in row)
        if columns is not None and len(row) != len(columns):
            place = self.context.place(row[0])
            self._wrong_width(relation, len(columns), len(row), place or self.context.location)
        return bound

    def _wrong_width(self, relation: Relation, wanted: int, given: int, place: Any) -> None:
        names = relation.column_names
        hint = f'columns of "{relation.name}" are {", ".join(names)}' if names else None
        self.context.report(
            SqlSyntaxError(
                f'INSERT INTO "{relation.name}" needs {wanted} values, not {given}', hint=hint, location=place
            )
        )

    def _insert_into_sink(self, node: raw.RawInsert) -> Result:
        if node.query is None:
            raise SqlSyntaxError("a sink is filled by a SELECT, not by VALUES")
        if node.or_replace or node.columns:
            raise SqlSyntaxError("INSERT INTO a URI takes neither OR REPLACE nor column names")
        after = take_with(node.target)
        uri, connector = self._uri_of(node.target)
        checked = props.Checked(self.context.report)
        own = props.as_mapping(after, checked)
        if connector is not None:
            self._known_properties(own, checked, connector)
            inherited = uri_properties(self.context, uri, connector, node.target)
            check_source(connector, {**inherited, **own}, checked, self.context, None, frozenset(own))
        bound = self._query(node.query, node.properties, sink=connector)
        return Result(model.InsertIntoSink(uri, bound.query, {**own, **bound.properties}, **self.common))

    def update(self, node: raw.RawUpdate) -> Result:
        """UPDATE of a table filled by hand."""
        relation = self._by_hand(node.table, "UPDATE")
        known = relation.column_names
        assignments = []
        for name, value in node.assignments:
            if known is not None and name.text.lower() not in {column.lower() for column in known}:
                self._unknown_column(name, known)
            if name.text.lower() in {column.lower() for column in relation.key}:
                self.context.report(
                    SqlSyntaxError(
                        f'key column "{name.text}" cannot be updated',
                        hint="delete the row and insert it anew",
                        location=name.location,
                    )
                )
            assignments.append((name.text, self._expression(value, relation)))
        where = self._expression(node.where, relation) if node.where is not None else None
        return Result(model.Update(relation.name, tuple(assignments), where, **self.common))

    def delete(self, node: raw.RawDelete) -> Result:
        """DELETE from a table filled by hand."""
        relation = self._by_hand(node.table, "DELETE FROM")
        where = self._expression(node.where, relation) if node.where is not None else None
        return Result(model.Delete(relation.name, where, **self.common))

    def _by_hand(self, name: raw.Name, verb: str) -> Relation:
        relation = self.context.lookup(name.text)
        if relation is None:
            hint = did_you_mean(name.text, self.context.names())
            raise UnknownNameError(f'unknown table "{name.text}"', hint=hint, location=name.location)
        if relation.kind is not RelationKind.TABLE or not relation.by_hand:
            kept = "its query" if relation.kind is RelationKind.TABLE else "what it reads"
            raise TableError(
                f'{verb} "{relation.name}" is not possible: this {relation.kind} is kept up to date by {kept}',
                hint="only a table created with columns and without AS SELECT is filled by hand",
                location=name.location,
            )
        return relation

    def _expression(self, node: exp.Expr, relation: Relation | None) -> exp.Expr:
        """An expression outside of a query; it sees the columns of the table, if any."""
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
            scope.relations[relation.name.lower()] = Shape(relation.column_names, (), relation.name)
        analysis = Analysis(relations.shapes, self.context.report)
        analysis.expression(holder, scope)
        bound = holder.this
        bound.parent = None
        return bound  # type: ignore[no-any-return]

    # --- reading ----------------------------------------------------------------------------------

    def select(self, node: raw.RawSelect) -> Result:
        """A bare query."""
        bound = self._query(node.query, node.properties, parameters=True)
        self._refuse_sink(bound)
        return Result(model.SelectStatement(bound.query, bound.properties, **self.common))

    def _query(
        self,
        query: raw.RawQuery,
        trailing: raw.RawWith | None,
        *,
        sink: ConnectorInfo | None = None,
        parameters: bool = False,
    ) -> Bound:
        binder = QueryBinder(self.context, sink, trailing, parameters_allowed=parameters)
        bound = binder.bind(query)
        self._check_headers(bound.query, sink)
        return bound

    def _check_headers(self, query: model.Query, sink: ConnectorInfo | None) -> None:
        for call in query.tree.find_all(exp.Anonymous):
            if call.name.lower() in HEADER_FUNCTIONS and not (query.sources or query.streams or sink):
                self.context.report(
                    SqlSyntaxError(f'function "{call.name}" needs a source whose records have headers'), call
                )

    def _refuse_sink(self, bound: Bound) -> None:
        if "sink" in bound.properties:
            self.context.report(
                PropertyError(
                    'property "sink" belongs to CREATE STREAM', hint="or write INSERT INTO uri SELECT …"
                )
            )

    def _only_common(self, with_: raw.RawWith | None) -> dict[str, str]:
        checked = props.Checked(self.context.report)
        written = props.as_mapping(with_, checked)
        for name in [name for name in written if name not in props.COMMON]:
            self.context.report(props.unknown(name, sorted(props.COMMON), checked.places[name].location))
            del written[name]
        props.validate(CommonOptions, written, checked, fallback=self.context.location, about="the table")
        return written

    # --- everything else --------------------------------------------------------------------------

    def show(self, node: raw.RawShow) -> Result:
        """SHOW."""
        connector = None
        if node.connector is not None:
            connector = next(
                (
                    name
                    for name in self.context.connectors.names()
                    if name.lower() == node.connector.text.lower()
                ),
                None,
            )
            by_scheme = self.context.connectors.by_scheme(node.connector.text.lower())
            connector = connector or (by_scheme.name if by_scheme is not None else None)
            if connector is None:
                names = [*self.context.connectors.names(), *self.context.connectors.schemes()]
                raise UnknownNameError(
                    f'unknown connector "{node.connector.text}"',
                    hint=did_you_mean(node.connector.text, names)
                    or f"connectors are {', '.join(sorted(set(names)))}",
                    location=node.connector.location,
                )
        return Result(model.Show(node.kind, connector, **self.common))

    def named(self, node: raw.RawNamed) -> Result:
        """SHOW CREATE and DESCRIBE."""
        relation = self.context.lookup(node.name.text)
        if relation is None:
            hint = did_you_mean(node.name.text, self.context.names())
            raise UnknownNameError(
                f'unknown table, stream, source or view "{node.name.text}"',
                hint=hint,
                location=node.name.location,
            )
        kind = model.ShowCreate if node.create else model.Describe
        return Result(kind(relation.name, **self.common))

    def explain(self, node: raw.RawExplain) -> Result:
        """EXPLAIN of anything."""
        inner = Binder(self.context, node.statement).bind(node.statement)
        return Result(model.Explain(inner.statement, **self.common))

    def control(self, node: raw.RawControl) -> Result:
        """PAUSE, RESUME, STOP."""
        return Result(model.ControlJob(node.action, node.job, **self.common))

    def drop(self, node: raw.RawDrop) -> Result:
        """DROP."""
        relation = self.context.lookup(node.name.text)
        if relation is None and not node.if_exists:
            hint = did_you_mean(node.name.text, self.context.names())
            raise UnknownNameError(
                f'unknown {node.kind} "{node.name.text}"',
                hint=hint or "write IF EXISTS",
                location=node.name.location,
            )
        if relation is not None and relation.kind.value != node.kind.value:
            raise SqlSyntaxError(
                f'"{relation.name}" is a {relation.kind}, not a {node.kind}',
                hint=f"write DROP {relation.kind.upper()} {relation.name}",
                location=node.name.location,
            )
        return Result(
            model.Drop(
                node.kind, relation.name if relation else node.name.text, node.if_exists, **self.common
            )
        )

    def replay(self, node: raw.RawReplay) -> Result:
        """REPLAY DEAD LETTERS."""
        dead = Relation(RelationKind.TABLE, "dead_letters")
        where = self._expression(node.where, dead) if node.where is not None else None
        return Result(model.ReplayDeadLetters(where, **self.common))


def _no_interval() -> exp.Interval:
    return exp.Interval(this=exp.Literal.string("0"), unit=exp.Var(this="SECOND"))


_BINDERS: dict[type[raw.Raw], Any] = {
    raw.RawCreate: Binder.create,
    raw.RawInsert: Binder.insert,
    raw.RawUpdate: Binder.update,
    raw.RawDelete: Binder.delete,
    raw.RawSelect: Binder.select,
    raw.RawShow: Binder.show,
    raw.RawNamed: Binder.named,
    raw.RawExplain: Binder.explain,
    raw.RawControl: Binder.control,
    raw.RawDrop: Binder.drop,
    raw.RawReplay: Binder.replay,
}
__all__ = ["Binder", "Result", "VelostreamError", "source_shape"]
