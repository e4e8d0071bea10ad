"""The contract of sources and sinks, for built-in connectors and those of users alike.

A relation outside is read in two phases: everything that is there now, then what changed since. Both are the
same call: `read(partition, None, end)` is a snapshot as of `end`, and `read(partition, start, end)` are the
changes after `start` up to `end`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from velostream.errors import InternalError, UnsupportedError
from velostream.model.options import BATCH_ROWS
from velostream.model.reach import Reach
from velostream.model.traits import SourceTraits
from velostream.model.uri import Uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from velostream.connectors.narrowing import Narrowing
    from velostream.connectors.waiting import Waiting
    from velostream.model.changes import BadRow, Offset
    from velostream.model.options import Options as AnyOptions

log = logging.getLogger("velostream.connectors")


class Delivery(StrEnum):
    """The delivery guarantee of a source or sink across a crash."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


@dataclass(frozen=True)
class SourceContext:
    """What the runtime provides to an opened source."""

    spool: Path
    """A durable folder of the source's own, which exists as long as the job."""
    schema: pa.Schema | None = None
    """Columns that were declared, or discovered at an earlier start; None lets the source discover them."""
    declared: bool = False
    """Whether the user declared `schema`, so that it must not widen."""
    once: bool = False
    """Read what is there and end, rather than wait for more."""
    table: bool = True
    """Whether a table is built on the source (rows may be retracted) or a stream (they may not)."""
    whole: bool = True
    """Whether to begin with everything that is there, or at the end, where the statement does not say."""
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    most_rows: int | None = None
    """`max.rows.per.batch`: how many rows one call of `latest` may advance by."""
    owner: str = ""
    """The job and its input; files in `spool` record it as their owner."""
    resumed: bool = False
    """Whether the job was created at an earlier start, so that the source's files in `spool` must exist."""
    passing: bool = False
    """Whether it is read by a SELECT, which ends with its process: nothing that it makes should stay."""
    makes: bool = True
    """Whether a missing source may be created where its properties say so; not where one only looks."""
    reach: Reach = field(default_factory=Reach)
    """Which files and addresses may be read; only what the properties name was checked so far."""


class Source(ABC):
    """One relation outside, opened by one job.

    Three methods make a source; the rest have defaults. All run in the driver, on the job's own thread.
    Positions must be replayable: `read` of the same range returns the same rows forever, or until `commit` of
    a later position allows older ranges to be forgotten. The traits describe the source, and are known before
    it is opened; `capabilities` has what a source may be able to do beyond this contract.
    """

    traits: SourceTraits = SourceTraits()
    """What `Connector.traits` returned; set by the caller that opens the source."""
    key: tuple[str, ...] = ()
    """The source's own key columns (a database's primary key), used when the statement names none.

    Known once the columns are.
    """
    batch_rows: int = BATCH_ROWS
    """How many rows the engine takes at a time, however many `read` yields. Set on opening."""
    most_rows: int | None = None
    """`SourceContext.most_rows`; set by the caller that opens the source."""
    declared: pa.Schema | None = None
    """The columns that the user declared, which `discover` has to return then. Set on opening."""
    beginning: Offset | None = None
    """The position after which the statement begins to read; None: before the first row. Set like these."""

    @abstractmethod
    def discover(self) -> pa.Schema:
        """The columns of a row, without system columns.

        Raises SourceMissingError when the source does not exist, and SourceEmptyError when it has no row yet
        to infer columns from.
        """

    @abstractmethod
    def latest(self, after: Offset | None) -> Offset:
        """The partitions, and the newest position of each that can be read now.

        `after` is the job's position; a source may advance by a bounded step from there. Must return a value
        equal to `after` when there is nothing new.
        """

    @abstractmethod
    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """Rows of one partition after `start` (None: from the beginning) up to and including `end`.

        Batches have the columns of `discover`, any of the system columns, and `_weight` where rows are
        retracted. With `start` None the rows are a snapshot: those that exist at `end`, all of weight 1.
        """

    def settled(self) -> bool:
        """Whether the last `latest` covered everything; False when it left something to a later poll."""
        return True

    def finished(self, offset: Offset) -> bool:
        """Whether no row can follow `offset` (a bounded source)."""
        return False

    def commit(self, offset: Offset) -> None:  # noqa: B027
        """Everything up to `offset` is durable in the job; older ranges will not be read again."""

    def check(self) -> None:  # noqa: B027
        """Raise the SourceError that explains why the source cannot be used, if it cannot."""

    def health(self) -> tuple[str, str | None]:
        """One of healthy, degraded, disconnected, "file not found", failed; and the reason."""
        return "healthy", None

    def close(self) -> None:  # noqa: B027
        """Close connections and files."""


@dataclass(frozen=True)
class SinkContext:
    """What the runtime provides to an opened sink."""

    state: Path
    """A durable folder of the sink's own."""
    schema: pa.Schema
    key: tuple[str, ...] = ()
    """The columns that identify a record: the key of the statement, or of the table that is read."""
    unique: bool = False
    """Whether no two rows have the same key at the same time."""
    decimal_format: str = "number"
    """How decimals are written in JSON: as a `number` with the same digits, or as a `string`."""
    delivery: Delivery | None = None
    """The delivery guarantee the statement asks for; None leaves it to the sink."""
    job: str = "job"
    """The job's id, for names in outside systems that a person may read."""
    resumed: bool = False
    """Whether the job was created at an earlier start, so that the sink's files in `state` must exist."""
    reach: Reach = field(default_factory=Reach)
    """Which files and addresses may be written to; only what the properties name was checked so far."""
    refuse: Callable[[list[BadRow]], None] = field(default=lambda rows: None)
    """Sets rows aside that can never be written; to be called before `write` makes the others durable.

    Raises when the statement treats such rows as a failure.
    """


class Sink(ABC):
    """One place outside that a job writes to, exactly once if it can.

    For each batch the runtime calls `intend`, then `write`, then records `Commit` with the value that `write`
    returned, then `committed`. After a crash between these, `recover` is called with the last recorded value
    before the batch is written again: anything written after that value must be undone or recognised.

    Where it cannot be undone, `intend` returns a value, which is made durable with the batch's positions
    before `write`. After a crash, following `recover`, `settle` returns whether that write took place; if it
    did, the batch counts as written and is not written again.
    """

    delivery: Delivery = Delivery.EXACTLY_ONCE
    takes_deletes: bool = False
    """Whether the sink accepts retractions; without it, a batch with retractions fails the job.

    A batch with retractions has a last column `_weight`: -1 for retracted rows, which come first, and 1 for
    added ones.
    """

    def intend(self, batch: int, rows: pa.Table) -> Mapping[str, Any] | None:
        """The value that `write` will return, where only the outside can say whether it took place."""
        return None

    def settle(self, intended: Mapping[str, Any]) -> bool:
        """Whether a write that was intended before a crash, and not recorded, took place."""
        raise InternalError(f"{type(self).__name__} records no intents")

    def try_out(self, rows: pa.Table) -> None:  # noqa: B027
        """Call `refuse` for the rows that `write` would reject, and write nothing."""

    @abstractmethod
    def write(self, batch: int, rows: pa.Table) -> Mapping[str, Any]:
        """Write the rows durably and return the value (JSON) that `recover` needs."""

    @abstractmethod
    def recover(self, recorded: Mapping[str, Any] | None) -> None:
        """Restore the outside to the last recorded write (None: nothing was written)."""

    def committed(self, recorded: Mapping[str, Any]) -> None:  # noqa: B027
        """The write is recorded and will not be undone."""

    def close(self) -> None:  # noqa: B027
        """Close connections and files."""


class Connector(ABC):
    """A kind of source or sink, found by URI scheme.

    Registered with `velostream.register` or an entry point of the group `velostream.connectors`.
    """

    name: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]]
    functions: ClassVar[tuple[str, ...]] = ()
    """SQL functions that name a source of this kind, such as `kafka_topic`."""
    Options: ClassVar[type[AnyOptions]]
    """Typed properties; unknown keys are refused. The docs and `SHOW PROPERTIES` are generated from them."""
    address: ClassVar[str | None] = None
    """The property that an address holds between `://` and `?`; others are its parameters, after `?`."""
    follows: ClassVar[str] = "rows that are added"
    """What its sources bring after the first load, in a few words, for `SHOW CONNECTORS`."""
    delivery: ClassVar[tuple[Delivery, ...]] = (Delivery.EXACTLY_ONCE,)
    """The guarantees of its sinks; the first is that of a statement without `"delivery"`."""
    driver: ClassVar[str | None] = None
    """The module that it needs beside Velostream; `pip install velostream[name]` installs a built-in's."""
    upserts: ClassVar[bool] = False
    """Whether its sinks accept upserts: updates of rows by key."""
    provisions: ClassVar[bool] = False
    """Whether its sources make things outside that are removed with the statement: `Provisioned`."""
    system_columns: ClassVar[tuple[str, ...]] = ()
    """System columns that rows of its sources have, besides those of all sources."""

    @classmethod
    def parse(cls, uri: Uri) -> Mapping[str, str]:
        """Properties that the URI itself carries (path, host, query)."""
        return {cls.address: uri.rest, **uri.parameters} if cls.address and uri.rest else uri.parameters

    def traits(self, options: AnyOptions, *, table: bool, once: bool) -> SourceTraits:
        """The traits of a source with these properties. Opens nothing.

        `table`: a table is built on it, so rows may be retracted. `once`: what is there is read, and no more
        is waited for.
        """
        return SourceTraits()

    def leads_to(self, options: AnyOptions) -> tuple[str, ...]:
        """The addresses that are reached although no property names them; `allowed.hosts` restricts them."""
        return ()

    @classmethod
    def uri_of(cls, argument: str) -> Uri:
        """The URI that a SQL function such as `kafka_topic('orders')` stands for."""
        return Uri(f"{cls.schemes[0]}://{argument}")

    def asked(self, options: AnyOptions, narrowing: Narrowing) -> str | None:
        """The query that a source with these properties sends, for EXPLAIN; None where it sends none."""
        return None

    def source(self, uri: Uri, options: AnyOptions, context: SourceContext) -> Source:
        """Open for reading."""
        raise UnsupportedError(f"{uri.scheme}:// is a sink: it is written, and not read")

    def sole_place(self, uri: Uri, options: AnyOptions) -> str | None:
        """The target that only one statement may write to, in a canonical form; None where several may."""
        return None

    def await_sink(self, uri: Uri, options: AnyOptions, waiting: Waiting) -> None:  # noqa: B027
        """Return once the sink's target exists, waiting as the options say; raises if it does not.

        Called when the statement is created, before anything of it is recorded.
        """

    def sink(self, uri: Uri, options: AnyOptions, context: SinkContext) -> Sink:
        """Open for writing; connects in `Sink.recover`."""
        raise UnsupportedError(f"{uri.scheme}:// is a source: it is read, and not written")
