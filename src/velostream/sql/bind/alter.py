"""Binds ALTER TABLE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.errors import (
    DuplicateNameError,
    SqlSyntaxError,
    TableError,
    UnknownNameError,
    did_you_mean,
)
from velostream.model import statements as model
from velostream.sql.bind import properties as props
from velostream.sql.bind.create import CreateBinder
from velostream.sql.bind.parts import Result
from velostream.sql.bind.relations import BUILT_IN
from velostream.sql.known_relations import Relation, RelationKind

if TYPE_CHECKING:
    from velostream.sql.parse import syntax as raw


class AlterBinder(CreateBinder):
    """ALTER TABLE: what it names must exist, and what it adds must be new."""

    def rename(self, node: raw.RawRename) -> Result:
        """RENAME TO."""
        relation = self._table(node.table)
        self.check_name(node.to)
        taken = self.context.lookup(node.to.text)
        if taken is not None or node.to.text.casefold() in BUILT_IN:
            raise DuplicateNameError(
                f'"{node.to.text}" exists already',
                hint="choose another name, or drop it first",
                location=node.to.location,
            )
        return Result(model.RenameTable(relation.name, node.to.text, **self.common))

    def set(self, node: raw.RawSet) -> Result:
        """SET (…): whether each property can be changed is known to who runs it."""
        relation = self._table(node.table)
        checked = props.Checked(self.context.report)
        found = props.as_mapping(node.properties, checked)
        if not found:
            raise SqlSyntaxError(
                "SET names no property",
                hint=f'write ALTER TABLE {relation.name} SET ("property" = "value")',
                location=node.properties.location,
            )
        return Result(model.SetProperties(relation.name, found, **self.common))

    def add_column(self, node: raw.RawAddColumn) -> Result:
        """ADD COLUMN."""
        relation = self._table(node.table)
        if not relation.by_hand:
            raise TableError(
                f'"{relation.name}" takes its columns from its query',
                hint="select the column there: write CREATE OR REPLACE TABLE",
                location=node.table.location,
            )
        (column,), _ = self.columns((node.column,), (), by_hand=True)
        if column.primary_key:
            raise SqlSyntaxError(
                f'column "{column.name}" cannot be added to the key: the rows that are there have none',
                hint="create another table, and fill it with INSERT INTO … SELECT",
                location=node.column.name.location,
            )
        known = relation.column_names or ()
        if not node.if_not_exists and column.name.casefold() in {name.casefold() for name in known}:
            raise DuplicateNameError(
                f'"{relation.name}" has a column "{column.name}" already',
                hint="write ADD COLUMN IF NOT EXISTS, or choose another name",
                location=node.column.name.location,
            )
        return Result(model.AddColumn(relation.name, column, node.if_not_exists, **self.common))

    def _table(self, name: raw.Name) -> Relation:
        relation = self.context.lookup(name.text)
        if relation is None:
            hint = did_you_mean(name.text, self.context.names())
            raise UnknownNameError(f'unknown table "{name.text}"', hint=hint, location=name.location)
        if relation.kind is not RelationKind.TABLE or name.text.casefold() in BUILT_IN:
            what = "is ours" if relation.kind is RelationKind.TABLE else f"is a {relation.kind}, not a table"
            raise SqlSyntaxError(f'"{relation.name}" {what}', location=name.location)
        return relation
