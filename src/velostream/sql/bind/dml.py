"""Binds INSERT, UPDATE and DELETE."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from velostream.errors import (
    DuplicateNameError,
    PropertyError,
    SqlSyntaxError,
    TableError,
    UnknownNameError,
    did_you_mean,
)
from velostream.model import statements as model
from velostream.secrets import redact_uri
from velostream.sql.bind import properties as props
from velostream.sql.bind.parts import Result, StatementBinder
from velostream.sql.bind.queries import check_source
from velostream.sql.bind.relations import BUILT_IN, refuse_parts, take_with, uri_properties
from velostream.sql.bind.row_queries import rows_query
from velostream.sql.known_relations import Relation, RelationKind
from velostream.sql.parse import elsewhere
from velostream.sql.parse import syntax as raw
from velostream.sql.text.node_locations import anchor
from velostream.sql.text.script import URI_MARK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from velostream.location import Location


class ChangeBinder(StatementBinder):
    """INSERT, UPDATE and DELETE."""

    def insert(self, node: raw.RawInsert) -> Result:
        """INSERT INTO a table filled by hand, or into a sink."""
        anchor(node.target, self.context.piece)
        target = node.target
        name = target.name
        if isinstance(target.this, exp.Anonymous) or name.startswith(URI_MARK) or "://" in name:
            return self._insert_into_sink(node)
        refuse_parts(target, self.context.connectors.schemes())
        relation = self._by_hand(
            raw.Name(name, self.context.place(target) or self.context.location), "INSERT INTO"
        )
        columns = self._insert_columns(node, relation)
        if node.query is not None:
            bound = self.query(node.query, node.properties, parameters=True, answered=True)
            self.refuse_sink(bound)
            if bound.properties and not bound.query.sources:
                self.context.report(PropertyError("INSERT INTO a table takes no properties"))
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
        for name in node.columns:
            if known is not None and name.text.lower() not in {column.lower() for column in known}:
                self._unknown_column(name, known)
        self._refuse_twice(node)
        return self._names(node) or known

    def _refuse_twice(self, node: raw.RawInsert) -> None:
        for position, name in enumerate(node.columns):
            if any(name.text.lower() == other.text.lower() for other in node.columns[:position]):
                self.context.report(
                    DuplicateNameError(f'column "{name.text}" stands twice', location=name.location)
                )

    def _unknown_column(self, name: raw.Name, known: Iterable[str]) -> None:
        self.context.report(
            UnknownNameError(
                f'unknown column "{name.text}"', hint=did_you_mean(name.text, known), location=name.location
            )
        )

    def _row(
        self, row: tuple[exp.Expr, ...], relation: Relation, columns: tuple[str, ...] | None
    ) -> tuple[exp.Expr, ...]:
        bound = tuple(self.expression(value, None) for value in row)
        if columns is not None and len(row) != len(columns):
            place = self.context.place(row[0])
            self._wrong_width(relation, len(columns), len(row), place or self.context.location)
        return bound

    def _wrong_width(self, relation: Relation, wanted: int, given: int, place: Any) -> None:
        names = relation.column_names
        values = "1 value" if wanted == 1 else f"{wanted} values"
        hint = f'columns of "{relation.name}" are {", ".join(names)}' if names else None
        self.context.report(
            SqlSyntaxError(
                f'INSERT INTO "{relation.name}" needs {values}, not {given}',
                hint=hint,
                location=place,
            )
        )

    def _insert_into_sink(self, node: raw.RawInsert) -> Result:
        if node.or_replace:
            raise SqlSyntaxError(
                "INSERT INTO a URI takes no OR REPLACE",
                hint='a sink that knows keys replaces by key: WITH ("key" = "column")',
            )
        self._refuse_twice(node)
        columns = self._names(node)
        after = take_with(node.target)
        uri, connector = self.uri_of(node.target)
        checked = props.Checked(self.context.report)
        own = props.as_mapping(after, checked)
        inherited: dict[str, str] = {}
        if connector is not None:
            self.known_properties(own, checked, connector)
            inherited = uri_properties(self.context, uri, connector, node.target)
            check_source(connector, {**inherited, **own}, checked, self.context, None, frozenset(own))
        values = tuple(tuple(self.expression(value, None) for value in row) for row in node.rows)
        read = node.query or raw.RawQuery(exp.select(exp.null()), node.location)
        bound = self.query(
            read, node.properties, sink=connector, sink_address={**inherited, **own}, parameters=True
        )
        query = replace(bound.query, tree=rows_query(values)) if values else bound.query
        properties = {**own, **bound.properties}
        statement = model.InsertIntoSink(uri, query, properties, columns, values, **self.common)
        wanted = len(columns or next(iter(values), ()))
        for row in values:
            self._check_width(wanted, len(row), self.context.place(row[0]))
        if columns and not values and bound.output is not None:
            self._check_width(wanted, len(bound.output), node.location)
        self._check_continuous(statement)
        return Result(statement)

    def _check_width(self, wanted: int, given: int, place: Location | None) -> None:
        if given != wanted:
            values = "1 value" if wanted == 1 else f"{wanted} values"
            place = place or self.context.location
            self.context.report(SqlSyntaxError(f"a row needs {values} here, not {given}", location=place))

    def _check_continuous(self, statement: model.InsertIntoSink) -> None:
        """Report what only a statement that is done once takes."""
        if statement.once:
            return
        if statement.columns:
            self.context.report(
                SqlSyntaxError(
                    "a continuous INSERT INTO a URI takes no column names",
                    hint="name the columns in the SELECT: SELECT a AS b",
                )
            )
        if statement.query.parameters:
            self.context.report(
                SqlSyntaxError("a continuous statement takes no parameters", hint="write the value itself")
            )

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
            assignments.append((name.text, self.expression(value, relation)))
        where = self.expression(node.where, relation) if node.where is not None else None
        return Result(model.Update(relation.name, tuple(assignments), where, **self.common))

    def delete(self, node: raw.RawDelete) -> Result:
        """DELETE from a table filled by hand, or dead letters."""
        letters = BUILT_IN.get(node.table.text.casefold())
        relation = letters or self._by_hand(node.table, node.verb)
        where = self.expression(node.where, relation) if node.where is not None else None
        return Result(model.Delete(relation.name, where, **self.common))

    def _by_hand(self, name: raw.Name, verb: str) -> Relation:
        relation = self.context.lookup(name.text)
        if relation is None:
            hint = did_you_mean(name.text, self.context.names()) or elsewhere.source(
                name.text, frozenset(self.context.connectors.schemes())
            )
            raise UnknownNameError(f'unknown table "{name.text}"', hint=hint, location=name.location)
        if relation.kind is not RelationKind.TABLE or not relation.by_hand:
            kept = "its query" if relation.kind is RelationKind.TABLE else "what it reads"
            raise TableError(
                f'{verb} "{relation.name}" is not possible: this {relation.kind} follows {kept}',
                hint=_instead(relation, verb),
                location=name.location,
            )
        return relation


def _instead(relation: Relation, verb: str) -> str:
    if relation.source is not None and verb == "INSERT INTO":
        return f"write to what it reads: INSERT INTO {redact_uri(relation.source.uri.text)} …"
    return "only a table created with columns and without AS SELECT is filled by hand"
