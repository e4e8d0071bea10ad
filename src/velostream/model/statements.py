"""Bound statements: what the SQL front end passes to the layers below.

All are frozen and equal when they mean the same, wherever they are in the text. Expressions and queries
inside them are sqlglot trees that Spark understands once relations are replaced by view names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta

    import pyarrow as pa
    from sqlglot import exp

    from velostream.location import Location
    from velostream.model.uri import Uri

Properties = Mapping[str, str]
"""Property name to text value, as written (secrets not resolved)."""


@dataclass(frozen=True)
class ColumnDef:
    """One declared column."""

    name: str
    type: pa.DataType
    primary_key: bool = False
    location: Location | None = None


@dataclass(frozen=True)
class Watermark:
    """`WATERMARK FOR column AS column - delay`."""

    column: str
    delay: timedelta


@dataclass(frozen=True)
class SourceRef:
    """A source as FROM names it.

    `id` is its name in the query's tree (`__source_1`); `properties` are those written after it and in its
    URI; `declared_in` names its CREATE SOURCE, if any.
    """

    id: str
    uri: Uri
    properties: Properties = field(default_factory=dict)
    columns: tuple[ColumnDef, ...] = ()
    watermark: Watermark | None = None
    declared_in: str | None = None
    alias: str | None = None
    location: Location | None = None
    system_columns: tuple[str, ...] = ()
    """The system columns of its connector's sources, besides those of all sources."""


class WindowKind(StrEnum):
    """Kinds of windows; cumulating ones come from the table function CUMULATE."""

    TUMBLING = "tumbling"
    SLIDING = "sliding"
    CUMULATING = "cumulating"
    SESSION = "session"
    ROWS = "rows"


@dataclass(frozen=True)
class WindowSpec:
    """The WINDOW clause."""

    kind: WindowKind
    size: timedelta | None = None
    months: int | None = None
    """The size in whole months, which differ in length."""
    advance: timedelta | None = None
    """Of sliding windows: from one to the next. Of cumulating ones: the step by which they grow."""
    gap: timedelta | None = None
    offset: timedelta | None = None
    """How far window starts are shifted from those counted from 1970."""
    rows: int | None = None
    time_column: str | None = None
    partition_by: tuple[exp.Expr, ...] = ()
    location: Location | None = None


class EmitMode(StrEnum):
    """When results are emitted."""

    FINAL = "final"
    CHANGES = "changes"


@dataclass(frozen=True)
class Emit:
    """The EMIT clause, or the default that follows from the query."""

    mode: EmitMode
    every: timedelta | None = None
    explicit: bool = False


@dataclass(frozen=True)
class Query:
    """A bound query.

    In `tree` every relation is a plain `exp.Table`: a source's `id`, or the name of a table, stream or
    CTE; views are expanded. `sources` holds the first, `tables` and `streams` the catalogue names used.
    """

    tree: exp.Query
    sources: tuple[SourceRef, ...] = ()
    tables: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    window: WindowSpec | None = None
    emit: Emit = Emit(EmitMode.CHANGES)
    closes: bool = False
    """Whether the result consists of time windows that close, by a watermark."""
    udfs: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    location: Location | None = None
    views: tuple[str, ...] = field(default=(), compare=False)
    """Views that were expanded; not part of the query's meaning."""

    @property
    def continuous(self) -> bool:
        """Whether it reads anything unbounded, so that it never ends by itself."""
        return bool(self.sources or self.streams)


@dataclass(frozen=True)
class Statement:
    """Base of all statements; `text` is the statement as written, without its semicolon."""

    text: str = field(compare=False, kw_only=True, default="")
    location: Location | None = field(kw_only=True, default=None)
    warnings: tuple[str, ...] = field(compare=False, kw_only=True, default=())
    """What is valid, and probably not meant."""


@dataclass(frozen=True)
class CreateTable(Statement):
    """CREATE TABLE … AS SELECT (a continuous job), or with columns only (filled by hand)."""

    name: str
    columns: tuple[ColumnDef, ...] = ()
    key: tuple[str, ...] = ()
    query: Query | None = None
    properties: Properties = field(default_factory=dict)
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateStream(Statement):
    """CREATE STREAM … AS SELECT; the property `sink` writes it out."""

    name: str
    query: Query
    properties: Properties = field(default_factory=dict)
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateSource(Statement):
    """CREATE SOURCE … FROM uri."""

    name: str
    uri: Uri
    columns: tuple[ColumnDef, ...] = ()
    key: tuple[str, ...] = ()
    watermark: Watermark | None = None
    properties: Properties = field(default_factory=dict)
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateView(Statement):
    """CREATE VIEW: a name for a query, expanded where it is used."""

    name: str
    query: Query
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class InsertInto(Statement):
    """INSERT INTO a table. Exactly one of `values` and `query` is set."""

    table: str
    columns: tuple[str, ...] = ()
    values: tuple[tuple[exp.Expr, ...], ...] = ()
    query: Query | None = None
    or_replace: bool = False


@dataclass(frozen=True)
class InsertIntoSink(Statement):
    """INSERT INTO uri SELECT …: a continuous job into a sink."""

    uri: Uri
    query: Query
    properties: Properties = field(default_factory=dict)


@dataclass(frozen=True)
class Update(Statement):
    """UPDATE of a table filled by hand."""

    table: str
    assignments: tuple[tuple[str, exp.Expr], ...]
    where: exp.Expr | None = None


@dataclass(frozen=True)
class Delete(Statement):
    """DELETE from a table filled by hand."""

    table: str
    where: exp.Expr | None = None


@dataclass(frozen=True)
class SelectStatement(Statement):
    """A SELECT of its own: answered once over tables, continuous over a source or stream."""

    query: Query
    properties: Properties = field(default_factory=dict)

    @property
    def follows(self) -> bool:
        """Whether it runs on: over a source or stream, and with EMIT CHANGES also over tables."""
        emit = self.query.emit
        watches = bool(self.query.tables) and emit.explicit and emit.mode is EmitMode.CHANGES
        return self.query.continuous or watches


class ShowKind(StrEnum):
    """What SHOW can list."""

    TABLES = "tables"
    STREAMS = "streams"
    SOURCES = "sources"
    VIEWS = "views"
    JOBS = "jobs"
    FUNCTIONS = "functions"
    CONNECTORS = "connectors"
    PROPERTIES = "properties"


@dataclass(frozen=True)
class Show(Statement):
    """SHOW …; `connector` narrows PROPERTIES."""

    kind: ShowKind
    connector: str | None = None


@dataclass(frozen=True)
class ShowCreate(Statement):
    """SHOW CREATE name."""

    name: str


@dataclass(frozen=True)
class Describe(Statement):
    """DESCRIBE name."""

    name: str


@dataclass(frozen=True)
class Explain(Statement):
    """EXPLAIN of another statement."""

    statement: Statement


class JobAction(StrEnum):
    """What can be done to a job."""

    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"


@dataclass(frozen=True)
class ControlJob(Statement):
    """PAUSE, RESUME or STOP JOB id."""

    action: JobAction
    job: str


class ObjectKind(StrEnum):
    """What DROP can drop."""

    TABLE = "table"
    STREAM = "stream"
    SOURCE = "source"
    VIEW = "view"


@dataclass(frozen=True)
class Drop(Statement):
    """DROP TABLE | STREAM | SOURCE | VIEW."""

    kind: ObjectKind
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class ReplayDeadLetters(Statement):
    """REPLAY DEAD LETTERS [WHERE …]."""

    where: exp.Expr | None = None
