"""Binds INSERT, UPDATE and DELETE."""

from __future__ import annotations

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
from velostream.sql.bind import properties as props
from velostream.sql.bind.parts import Result, StatementBinder
from velostream.sql.bind.queries import check_source
from velostream.sql.bind.relations import BUILT_IN, take_with, uri_properties
from velostream.sql.catalog import Relation, RelationKind
from velostream.sql.parse import syntax as raw
from velostream.sql.text.node_locations import anchor
from velostream.sql.text.script import URI_MARK

if TYPE_CHECKING:
    from collections.abc import Iterable


class ChangeBinder(StatementBinder):
    """INSERT, UPDATE and DELETE."""

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
        if node.query is None:
            raise SqlSyntaxError("a sink is filled by a SELECT, not by VALUES")
        if node.or_replace or node.columns:
            raise SqlSyntaxError("INSERT INTO a URI takes neither OR REPLACE nor column names")
        after = take_with(node.target)
        uri, connector = self.uri_of(node.target)
        checked = props.Checked(self.context.report)
        own = props.as_mapping(after, checked)
        if connector is not None:
            self.known_properties(own, checked, connector)
            inherited = uri_properties(self.context, uri, connector, node.target)
            check_source(connector, {**inherited, **own}, checked, self.context, None, frozenset(own))
        bound = self.query(node.query, node.properties, sink=connector)
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
            assignments.append((name.text, self.expression(value, relation)))
        where = self.expression(node.where, relation) if node.where is not None else None
        return Result(model.Update(relation.name, tuple(assignments), where, **self.common))

    def delete(self, node: raw.RawDelete) -> Result:
        """DELETE from a table filled by hand, or dead letters."""
        letters = BUILT_IN.get(node.table.text.casefold())
        relation = letters or self._by_hand(node.table, "DELETE FROM")
        where = self.expression(node.where, relation) if node.where is not None else None
        return Result(model.Delete(relation.name, where, **self.common))

    def _by_hand(self, name: raw.Name, verb: str) -> Relation:
        relation = self.context.lookup(name.text)
        if relation is None:
            hint = did_you_mean(name.text, self.context.names())
            raise UnknownNameError(f'unknown table "{name.text}"', hint=hint, location=name.location)
        if relation.kind is not RelationKind.TABLE or not relation.by_hand:
            kept = "its query" if relation.kind is RelationKind.TABLE else "what it reads"
            raise TableError(
                f'{verb} "{relation.name}" is not possible: this {relation.kind} follows {kept}',
                hint="only a table created with columns and without AS SELECT is filled by hand",
                location=name.location,
            )
        return relation
