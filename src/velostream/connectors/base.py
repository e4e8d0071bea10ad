"""The door through which every source and sink comes, built-in or a user's own.

A relation outside is read in two phases: everything that is there now, then what changed since. Both
are the same call here: `read(partition, None, end)` is all of it as of `end`, and
`read(partition, start, end)` are the changes after `start` up to `end`.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from velostream.errors import InternalError, UnsupportedError, VelostreamError
from velostream.model.reach import Reach
from velostream.model.traits import SourceTraits
from velostream.model.uri import Uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import timedelta
    from pathlib import Path
    from threading import Event

    import pyarrow as pa

    from velostream.model.changes import BadRow, Offset
    from velostream.model.options import Options as AnyOptions

log = logging.getLogger("velostream.connectors")


class Delivery(StrEnum):
    """What a source or sink promises across a crash."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


@dataclass(frozen=True)
class SourceContext:
    """What the runtime lends to an opened source."""

    spool: Path
    """A durable folder of the source's own, kept as long as the job."""
    schema: pa.Schema | None = None
    """Columns that were declared, or discovered by an earlier start; None lets the source discover."""
    declared: bool = False
    """Whether `schema` was written by the user, so that it must not widen."""
    once: bool = False
    """Read what is there and end, rather than wait for more."""
    table: bool = True
    """Whether a table is built on it (rows may be taken back) or a stream (they may not)."""
    whole: bool = True
    """Whether to begin with all that is there, where the statement does not say where; or at the end."""
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    most_rows: int | None = None
    """`max.rows.per.batch`: how far one call of `latest` may go."""
    owner: str = ""
    """The job and its input: files in `spool` say that they are theirs."""
    resumed: bool = False
    """Whether the job was made by an earlier start: what a source keeps in `spool` from then on is there."""
    reach: Reach = field(default_factory=Reach)
    """Which files and addresses may be read: its properties were checked, what they lead to was not."""


class Source(ABC):
    """One relation outside, opened by one job.

    Three methods make a source; the rest have defaults. All run in the driver, on the job's own thread.
    Positions must be replayable: `read` of the same range gives the same rows for ever, or until
    `commit` of a later position allows older ranges to be forgotten. What it is stands in its traits, which
    the connector tells before it is opened; what it can do beyond this, in `capabilities`.
    """

    traits: SourceTraits = SourceTraits()
    """Set by whoever opens it, to what `Connector.traits` said."""
    key: tuple[str, ...] = ()
    """The source's own key columns (a database's primary key), used when the statement names none; known
    once the columns are."""

    @abstractmethod
    def discover(self) -> pa.Schema:
        """The columns of a row, without system columns.

        Raises SourceMissingError when the source is not there, or has no row yet to tell from.
        """

    @abstractmethod
    def latest(self, after: Offset | None) -> Offset:
        """The partitions and the newest position of each that can be read now.

        `after` is what the job already has; a source may advance by a bounded step from there.
        Must return `after` itself (an equal value) when there is nothing new.
        """

    @abstractmethod
    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """Rows of one partition after `start` (None: from the beginning) up to and including `end`.

        Batches have the columns of `discover`, any of the system columns, and `_weight` where rows
        are taken back. With `start` None the rows are those that are live at `end`, all of weight 1.
        """

    def settled(self) -> bool:
        """Whether the last `latest` saw all there is; False when it left something to a later look."""
        return True

    def finished(self, offset: Offset) -> bool:
        """Whether nothing can come after `offset` (a bounded source)."""
        return False

    def commit(self, offset: Offset) -> None:  # noqa: B027
        """Everything up to `offset` is durable in the job; older ranges will not be read again."""

    def check(self) -> None:  # noqa: B027
        """Raise the SourceError that explains why the source cannot be used, if so."""

    def health(self) -> tuple[str, str | None]:
        """One of healthy, degraded, disconnected, "file not found", failed; and the reason."""
        return "healthy", None

    def close(self) -> None:  # noqa: B027
        """Let go of connections and files."""


def wait_while_missing(
    check: Callable[[], object],
    missing: type[VelostreamError],
    timeout: timedelta,
    delay: Callable[[int], timedelta],
    stop: Event,
    tell: Callable[[str], None],
) -> None:
    """Until `check` finds it; raises what it says after the timeout. `delay` is asked after each attempt."""
    deadline = time.monotonic() + timeout.total_seconds()
    for attempt in count(1):
        try:
            check()
        except missing as exc:
            left = deadline - time.monotonic()
            if left <= 0 or stop.is_set():
                raise
            tell(f"attempt {attempt}: {exc.message}; trying again for {left:.0f}s")
            stop.wait(min(delay(attempt).total_seconds(), left))
        else:
            return


@dataclass(frozen=True)
class SinkContext:
    """What the runtime lends to an opened sink."""

    state: Path
    """A durable folder of the sink's own."""
    schema: pa.Schema
    key: tuple[str, ...] = ()
    """The columns that tell which record a row is: of the statement, or of the table that is read."""
    unique: bool = False
    """Whether no two rows that are there at the same time have the same key."""
    decimal_format: str = "number"
    """How decimals stand in JSON: `number` with the same digits, or `string`."""
    delivery: Delivery | None = None
    """What the statement asks for; None leaves it to the sink."""
    job: str = "job"
    """The job's id, for names outside that a person may read."""
    resumed: bool = False
    """Whether the job was made by an earlier start: what a sink keeps in `state` from then on is there."""
    refuse: Callable[[list[BadRow]], None] = field(default=lambda rows: None)
    """Takes rows that can never be written; to be called before `write` makes the others durable. Raises when
    the statement says that such a row is a failure."""


class Sink(ABC):
    """One place outside that a job writes to, exactly once if it can.

    For each batch the runtime calls `intend`, then `write`, then records `Commit` with the value that `write`
    returned, then `committed`. After a crash between these, `recover` is called with the last recorded value
    before the batch is written again: what was written after it must be undone or recognised.

    Where it cannot be undone, `intend` gives a value, which is made durable with the batch's positions before
    `write`. After a crash `settle` is asked, after `recover`, whether that write took place: then the
    positions are taken as they are, and the batch is not done again.
    """

    delivery: Delivery = Delivery.EXACTLY_ONCE
    takes_deletes: bool = False
    """Whether rows may be taken back. A batch that does has a last column `_weight`: -1 for those rows, which
    come first, and 1 for the others. Without it, such a batch fails the job."""

    def intend(self, batch: int, rows: pa.Table) -> Mapping[str, Any] | None:
        """What `write` of these rows will return, where only the outside can tell whether it took place."""
        return None

    def settle(self, intended: Mapping[str, Any]) -> bool:
        """Whether the write that was intended before a crash, and not recorded, took place."""
        raise InternalError(f"{type(self).__name__} records no intents")

    def try_out(self, rows: pa.Table) -> None:  # noqa: B027
        """Tell `refuse` of the rows that `write` would not take, and write nothing."""

    @abstractmethod
    def write(self, batch: int, rows: pa.Table) -> Mapping[str, Any]:
        """Write the rows durably and return what `recover` needs (JSON)."""

    @abstractmethod
    def recover(self, recorded: Mapping[str, Any] | None) -> None:
        """Bring the outside back to the state of the last recorded write (None: nothing was written)."""

    def committed(self, recorded: Mapping[str, Any]) -> None:  # noqa: B027
        """The write is recorded and will not be undone."""

    def close(self) -> None:  # noqa: B027
        """Let go of connections and files."""


class Connector(ABC):
    """A kind of source or sink, found by URI scheme.

    Registered with `velostream.register` or an entry point of the group `velostream.connectors`.
    """

    name: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]]
    functions: ClassVar[tuple[str, ...]] = ()
    """SQL functions that name a source of this kind, such as `kafka_topic`."""
    Options: ClassVar[type[AnyOptions]]
    """Typed properties; unknown keys are refused. The docs and `SHOW PROPERTIES` come from it."""
    available: ClassVar[bool] = True
    """False while this version parses and checks but does not run the connector."""
    upserts: ClassVar[bool] = False
    """Whether its sinks take changes of rows by key."""
    system_columns: ClassVar[tuple[str, ...]] = ()
    """System columns that rows of its sources have, beside those that all sources have."""

    @staticmethod
    def parse(uri: Uri) -> Mapping[str, str]:
        """Properties that the URI itself carries (path, host, query)."""
        return uri.parameters

    def traits(self, options: AnyOptions, *, table: bool, once: bool) -> SourceTraits:
        """What a source with these properties is. Opens nothing.

        `table`: a table is built on it, so that rows may be retracted. `once`: what is there is read, and no
        more is waited for.
        """
        return SourceTraits()

    @classmethod
    def uri_of(cls, argument: str) -> Uri:
        """The URI that a SQL function such as `kafka_topic('orders')` stands for."""
        return Uri(f"{cls.schemes[0]}://{argument}")

    def source(self, uri: Uri, options: AnyOptions, context: SourceContext) -> Source:
        """Open for reading."""
        raise UnsupportedError(f"reading {uri.scheme}:// is not in this version yet")

    def sole_place(self, uri: Uri, options: AnyOptions) -> str | None:
        """What only one statement may write to, equal for every spelling of it; None where several may."""
        return None

    def await_sink(  # noqa: B027
        self, uri: Uri, options: AnyOptions, stop: Event, tell: Callable[[str], None]
    ) -> None:
        """Return once what is written to is there, waiting as the options say; raises what is wrong.

        Called when the statement is made, before anything of it is kept.
        """

    def sink(self, uri: Uri, options: AnyOptions, context: SinkContext) -> Sink:
        """Open for writing; connects in `Sink.recover`."""
        raise UnsupportedError(f"writing {uri.scheme}:// is not in this version yet")
