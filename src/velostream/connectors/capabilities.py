"""Optional capabilities of sources, beyond the contract: a source derives from those it has.

Each capability has a stand-in for sources without it, so callers need not distinguish:
`Counted.of(source).count(…)`. Like the contract, everything runs in the driver, on the thread of the job.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime
    from threading import Event

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from velostream.connectors.base import Source
    from velostream.connectors.narrowing import Narrowing
    from velostream.errors import VelostreamError
    from velostream.model.changes import BadRow, Located, Offset


class Capability:
    """A capability that a source may have."""

    @classmethod
    def of(cls, source: Source) -> Self:
        """The source itself if it has the capability, else a stand-in."""
        return source if isinstance(source, cls) else cls()


class SparkReader(Capability):
    """Spark itself reads ranges, in parallel, instead of `Source.read` in the driver."""

    session: SparkSession | None = None
    """The Spark session; set before the first call."""
    tasks: int | None = None
    """The number of tasks that read a range; None leaves it to the source. Used with `takes_tasks`."""
    splits: bool = True
    """Whether several tasks may read one partition. Used with `takes_tasks`."""

    def frame(
        self,
        spark: SparkSession,
        start: Offset | None,
        end: Offset,
        columns: Sequence[str] | None,
        *,
        careful: bool = False,
    ) -> DataFrame | None:
        """The same rows as `read` over all partitions, as a native Spark plan, or None to use `read`.

        `columns` are the columns the statement uses, system columns included; None means all but system ones.
        Not `careful`: the plan must fail (Spark's FAILFAST) on the first row that cannot be decoded, so that
        clean input pays nothing; the engine then asks again, `careful`, and gets `_bad`. The system column
        `_position`, a string, orders the rows of the source: a later row sorts after. In careful frames it is
        also unique per row, and the same in every frame. A column `_weight` (+1, -1) exists only when the
        range retracts rows. A string column `_bad` may mark rows that could not be decoded: it is null in
        good rows, and in bad ones the other columns are undefined (see `BadRecords`). A row that was bad when
        it was added is in `bad_rows` of that range and was never counted, so a retracted row is never marked.
        """
        return None


class Counted(Capability):
    """The source knows how many rows a range has without reading them."""

    def count(self, start: Offset | None, end: Offset) -> int | None:
        """The number of rows added and retracted in a range; None where it is not known."""
        return None

    def counts(self, start: Offset | None, end: Offset) -> Mapping[str, int]:
        """The number of rows of each partition; empty where partitions mean nothing to a user."""
        return {}

    def lags(self, offset: Offset) -> Mapping[str, int]:
        """The lag: how many records of each partition follow `offset`, as of the last `latest`."""
        return {}


class Partitioned(Capability):
    """The source's partitions matter for event time: each has a watermark of its own."""

    def partitions(self, start: Offset | None, end: Offset) -> Mapping[str, str] | None:
        """The partitions at `end`, each with an SQL condition over `partition_columns` that selects its rows.

        None where positions do not name partitions: then they are found by reading.
        """
        return {name: "_partition = '" + name.replace("\\", "\\\\").replace("'", "\\'") + "'" for name in end}

    def watermark(self, offset: Offset) -> datetime | None:
        """A time that no row after `offset` precedes, where the source knows one; None: derived from rows."""
        return None


class BadRecords(Capability):
    """The source may have records that cannot be decoded, and knows where each is."""

    def has_bad_rows(self, start: Offset | None, end: Offset) -> bool:
        """Whether the source itself set rows of the range aside, which are in no frame. Cheap."""
        return False

    def bad_rows(self, start: Offset | None, end: Offset) -> Iterator[BadRow]:
        """The rows of a range that could not be decoded; called only when `_bad` was seen."""
        return iter(())

    def located(self, positions: Collection[str], end: Offset) -> Mapping[str, Located]:
        """The place and content of the records at these `_position`s; unknown ones are left out.

        Called for rows up to `end` that cannot be computed, so that users can find them at their source.
        """
        return {}


class Widening(Capability):
    """The source's columns were discovered; later rows may need more columns, or wider types."""

    def new_columns(self, start: Offset | None, end: Offset) -> bool:
        """Whether rows of the range have columns that the schema lacks; called before a range is read.

        If so, `widen` returns the schema with them.
        """
        return False

    def widen(self, start: Offset | None, end: Offset) -> pa.Schema | None:
        """A wider schema under which bad rows of the range decode, or None. Never for declared columns."""
        return None


class Replayable(Capability):
    """Single records can be read again, to replay dead letters."""

    def again(
        self, spark: SparkSession, positions: Collection[str], end: Offset, columns: Sequence[str] | None
    ) -> DataFrame | None:
        """A careful frame with `_position`, of the records up to `end` at these positions.

        Records that no longer exist are left out. None: the engine picks them out of a full read.
        """
        return None

    def reasons(self, positions: Collection[str], end: Offset) -> Mapping[str, str]:
        """Why the records at these positions, which `again` marks as bad, cannot be decoded."""
        return {}

    def oldest(self) -> Offset | None:
        """The position after which everything can still be read; None: everything can."""
        return None

    def took(self, position: str) -> bool | None:
        """Whether this source has read the record at this position of an earlier statement's source.

        False where reading began after it; None where it is no record of this source, or that is unknown.
        """
        return None


class Ordered(Capability):
    """The source's positions do not sort in the order of its rows."""

    def order(self, positions: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        """Values that sort in the order of the rows with these `_position`s."""
        return positions


class Explaining(Capability):
    """The source can interpret Spark's errors from reading it."""

    def explained(self, said: str) -> VelostreamError | None:
        """The error that Spark's message stands for; None when it does not concern this source."""
        return None

    def note_lost(self, start: Offset | None, end: Offset) -> bool:
        """Find out which records of a range are lost: frames then skip them, and `bad_rows` reports them.

        Called after `explained` returned a SourceLostError; False when no more are lost than was known.
        """
        return False


class Awaited(Capability):
    """The source defines how long to wait between two attempts while it is missing."""

    def retry_delay(self, attempt: int) -> timedelta:
        """The delay after an attempt, counted from 1, that found the source missing."""
        return timedelta(seconds=2)


class Announcing(Capability):
    """The source learns of news by itself, so that it need not be polled often."""

    def listen(self, news: Event) -> None:
        """Set `news` whenever `latest` would return more than before; called once, before the first poll."""


class Narrowed(Capability):
    """The source asks by a query, which may leave out rows and columns that the statement does not need."""

    def narrow(self, narrowing: Narrowing) -> None:
        """Leave out what is not needed, or less; called once, before the first `latest`."""


class Provisioned(Capability):
    """The source makes things outside that outlive it: a replication slot, a publication."""

    def release(self) -> None:
        """Remove them: the statement is dropped. Called once; errors are the caller's to report."""
