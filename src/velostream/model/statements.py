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
    default: exp.Expr | None = None
    """The constant of rows that do not name the column; only of tables filled by hand."""


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
    enough: int | None = None
    """How many rows of its one source are enough, whichever they are; None: all are needed."""
    views: tuple[str, ...] = field(default=(), compare=False)
    """Views that were expanded; not part of the query's meaning."""

    @property
    def continuous(self) -> bool:
        """Whether it reads anything unbounded, so that it never ends by itself."""
        return bool(self.sources or self.streams)

    @property
    def limited(self) -> bool:
        """Whether it asks with LIMIT for rows of something unbounded: of those that are there now."""
        return self.continuous and not self.emit.explicit and self.tree.args.get("limit") is not None


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
    """INSERT INTO uri: rows that are known now, written once, or a continuous job into a sink."""

    uri: Uri
    query: Query
    """The SELECT; with VALUES, a query that returns them."""
    properties: Properties = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    """Names for the columns of the rows, in place of the query's own."""
    values: tuple[tuple[exp.Expr, ...], ...] = ()

    @property
    def once(self) -> bool:
        """Whether it is done when it has written what there is: VALUES, and a SELECT over tables.

        As with a SELECT of its own, EMIT makes it follow the tables; sources and streams never end.
        """
        waits = self.query.emit.explicit or self.query.closes
        return not self.query.continuous and not waits


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
    """A SELECT of its own: answered once over tables, continuous over a source or stream without LIMIT."""

    query: Query
    properties: Properties = field(default_factory=dict)

    @property
    def follows(self) -> bool:
        """Whether it runs on: over a source or stream without LIMIT, with EMIT CHANGES also over tables."""
        emit = self.query.emit
        watches = bool(self.query.tables) and emit.explicit and emit.mode is EmitMode.CHANGES
        return (self.query.continuous and not self.query.limited) or watches


class ShowKind(StrEnum):
    """What SHOW can list."""

    TABLES = "tables"
    MATERIALIZED_VIEWS = "materialized views"
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
    called: str = ""
    """The word for the kind: `materialized view`, where that was written."""


@dataclass(frozen=True)
class DropJob(Statement):
    """DROP JOB id: of an INSERT INTO a sink, which has no other name."""

    job: str


@dataclass(frozen=True)
class RenameTable(Statement):
    """ALTER TABLE … RENAME TO …."""

    name: str
    to: str


@dataclass(frozen=True)
class SetProperties(Statement):
    """ALTER TABLE … SET (…)."""

    name: str
    properties: Properties


@dataclass(frozen=True)
class AddColumn(Statement):
    """ALTER TABLE … ADD COLUMN … of a table filled by hand."""

    name: str
    column: ColumnDef
    if_not_exists: bool = False


Alter = RenameTable | SetProperties | AddColumn


@dataclass(frozen=True)
class ReplayDeadLetters(Statement):
    """REPLAY DEAD LETTERS [WHERE …]."""

    where: exp.Expr | None = None
