"""The specification of a table, apart from its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from velostream.model.columns import HIDDEN, KEY, MESSAGE_KEY


@dataclass(frozen=True)
class TableSpec:
    """The specification of a stored table.

    `schema` is physical: it may have columns that only the job needs (accumulators, unselected group keys),
    named with the prefix `HIDDEN`. `key` names physical columns; without one the table is a multiset of rows.
    A row is visible unless the hidden column `SHOWN` exists and is false in it.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    datasource_type: str = "memory"
    owner: str | None = None
    """Id of the job that writes the table; None for a table filled by hand."""
    statement: str | None = None
    """The statement that created the table: the catalogue can be rebuilt from it."""
    job: str | None = None
    """The folder of the job that fills it."""

    @cached_property
    def lookup_key(self) -> tuple[str, ...]:
        """The key by which readers look rows up; empty where they do not see all of its columns.

        Groups whose columns are not all selected, and windows without their bounds, have hidden key columns.
        A message key is no column of the table, but known to those who wrote it.
        """
        if self.key == (MESSAGE_KEY,):
            return (KEY,)
        return self.key if not any(name.startswith(HIDDEN) for name in self.key) else ()

    @property
    def visible(self) -> tuple[str, ...]:
        """Names of the columns that readers see, in order."""
        return tuple(name for name in self.schema.names if not name.startswith(HIDDEN))

    @property
    def visible_schema(self) -> pa.Schema:
        """The schema that readers see."""
        return pa.schema([self.schema.field(name) for name in self.visible])


@dataclass(frozen=True)
class Retention:
    """How long rows stay in a table: `micros` after their event time, or after they were last written."""

    micros: int
    column: str | None = None
    """The event time; rows in which it is null stay."""
    unit: int = 1
    """The unit of an integer column, in microseconds."""

    def options(self) -> dict[str, str]:
        """As options of a table."""
        found = {"retention": str(self.micros), "retention.unit": str(self.unit)}
        return found | ({"retention.column": self.column} if self.column is not None else {})

    @classmethod
    def of(cls, spec: TableSpec) -> Retention | None:
        """The retention that a table's options specify."""
        micros = spec.options.get("retention")
        if micros is None:
            return None
        return cls(int(micros), spec.options.get("retention.column"), int(spec.options["retention.unit"]))


DEFAULT = b"default"
"""Metadata of a column: the value of rows that lack it, as text. A column without it is null in them."""


def with_default(field: pa.Field, value: object) -> pa.Field:
    """A column whose value in rows that lack it is this one."""
    if value is None:
        return field
    return field.with_metadata({DEFAULT: pa.array([value], field.type).cast(pa.string())[0].as_py().encode()})


def lacking(field: pa.Field, count: int) -> pa.Array:
    """The values of a column in rows that lack it."""
    text = (field.metadata or {}).get(DEFAULT)
    if text is None:
        return pa.nulls(count, field.type)
    return pa.repeat(pa.array([text.decode()], pa.string()).cast(field.type)[0], count)


DEAD_LETTERS = "dead_letters"
"""Name of the table that every data directory has."""
