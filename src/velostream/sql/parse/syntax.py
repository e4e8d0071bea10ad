"""Parsed statements, as the parser passes them to the binder: nothing is looked up yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp

    from velostream.location import Location
    from velostream.model.statements import (
        Emit,
        JobAction,
        ObjectKind,
        ShowKind,
        WindowSpec,
    )


@dataclass(frozen=True)
class Name:
    """A name and its location."""

    text: str
    location: Location


@dataclass(frozen=True)
class RawProperty:
    """One `"key" = "value"` of a WITH."""

    key: str
    value: str
    location: Location
    value_location: Location


@dataclass(frozen=True)
class RawWith:
    """One WITH (…); `end` is its end, by which it is known whether it ends the statement."""

    properties: tuple[RawProperty, ...]
    location: Location
    end: int


@dataclass(frozen=True)
class RawColumn:
    """One declared column."""

    name: Name
    type: exp.DataType
    primary_key: bool
    default: exp.Expr | None = None


@dataclass(frozen=True)
class RawSchema:
    """The parenthesis after the name in CREATE."""

    columns: tuple[RawColumn, ...] = ()
    key: tuple[Name, ...] = ()
    watermark: tuple[Name, exp.Expr] | None = None


@dataclass(frozen=True)
class RawQuery:
    """A query with our clauses still attached to its tree (see `clauses`)."""

    tree: exp.Query
    location: Location


@dataclass(frozen=True)
class Raw:
    """Base: the text and the location of the whole statement, and its end within its piece."""

    text: str = field(kw_only=True)
    location: Location = field(kw_only=True)
    end: int = field(kw_only=True, default=0)


@dataclass(frozen=True)
class RawCreate(Raw):
    """CREATE TABLE, STREAM, SOURCE or VIEW."""

    kind: ObjectKind
    name: Name
    schema: RawSchema
    query: RawQuery | None
    relation: exp.Table | None
    properties: RawWith | None
    or_replace: bool
    if_not_exists: bool


@dataclass(frozen=True)
class RawInsert(Raw):
    """INSERT INTO a table or a URI."""

    target: exp.Table
    columns: tuple[Name, ...]
    rows: tuple[tuple[exp.Expr, ...], ...]
    query: RawQuery | None
    properties: RawWith | None
    or_replace: bool


@dataclass(frozen=True)
class RawUpdate(Raw):
    """UPDATE t SET … WHERE …."""

    table: Name
    assignments: tuple[tuple[Name, exp.Expr], ...]
    where: exp.Expr | None


@dataclass(frozen=True)
class RawDelete(Raw):
    """DELETE FROM t WHERE …."""

    table: Name
    where: exp.Expr | None
    verb: str = "DELETE FROM"
    """As it was written: TRUNCATE deletes all rows."""


@dataclass(frozen=True)
class RawSelect(Raw):
    """A query outside of another statement."""

    query: RawQuery
    properties: RawWith | None


@dataclass(frozen=True)
class RawShow(Raw):
    """SHOW …."""

    kind: ShowKind
    connector: Name | None


@dataclass(frozen=True)
class RawNamed(Raw):
    """SHOW CREATE name, or DESCRIBE name."""

    name: Name
    create: bool


@dataclass(frozen=True)
class RawExplain(Raw):
    """EXPLAIN of another statement."""

    statement: Raw


@dataclass(frozen=True)
class RawControl(Raw):
    """PAUSE, RESUME or STOP JOB."""

    action: JobAction
    job: str


@dataclass(frozen=True)
class RawDrop(Raw):
    """DROP."""

    kind: ObjectKind
    name: Name
    if_exists: bool
    called: str
    """The word for the kind: `materialized view`, where that was written."""


@dataclass(frozen=True)
class RawDropJob(Raw):
    """DROP JOB."""

    job: str


@dataclass(frozen=True)
class RawRename(Raw):
    """ALTER TABLE … RENAME TO …."""

    table: Name
    to: Name


@dataclass(frozen=True)
class RawSet(Raw):
    """ALTER TABLE … SET (…)."""

    table: Name
    properties: RawWith


@dataclass(frozen=True)
class RawAddColumn(Raw):
    """ALTER TABLE … ADD COLUMN …."""

    table: Name
    column: RawColumn
    if_not_exists: bool


@dataclass(frozen=True)
class RawReplay(Raw):
    """REPLAY DEAD LETTERS."""

    where: exp.Expr | None


@dataclass(frozen=True)
class RawEmit:
    """EMIT and its location."""

    emit: Emit
    location: Location


@dataclass(frozen=True)
class RawWindow:
    """The WINDOW clause and its location."""

    spec: WindowSpec
    location: Location
    time_column: exp.Column | None
