"""What a table is, apart from its rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True)
class TableSpec:
    """The shape of a stored table.

    `schema` is physical: it may hold columns that only the job needs (accumulators, unselected group
    keys), named with the prefix `HIDDEN`. `key` names physical columns; without one the table is a
    multiset of rows. A row is visible unless the hidden column `SHOWN` exists and is false in it.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    datasource_type: str = "memory"
    owner: str | None = None
    """Id of the job that writes the table; None for a table filled by hand."""

    @property
    def visible(self) -> tuple[str, ...]:
        """Names of the columns that readers see, in order."""
        return tuple(name for name in self.schema.names if not name.startswith(HIDDEN))

    @property
    def visible_schema(self) -> pa.Schema:
        """The schema that readers see."""
        return pa.schema([self.schema.field(name) for name in self.visible])


HIDDEN = "__"
"""Prefix of physical columns that readers do not see."""

SHOWN = "__shown"
"""Hidden boolean column: false in rows that HAVING (or a closed window) keeps from readers."""
