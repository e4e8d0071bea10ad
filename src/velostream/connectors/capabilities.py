"""What a source may be able to do beyond its contract: it then derives from these classes, too.

Each has an answer for sources that cannot, so whoever asks need not know: `Counted.of(source).count(…)`.
Like the contract, all of it runs in the driver, on the thread of the job.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from velostream.connectors.base import Source
    from velostream.errors import VelostreamError
    from velostream.model.changes import BadRow, Located, Offset


class Capability:
    """Something that a source may be able to do."""

    @classmethod
    def of(cls, source: Source) -> Self:
        """The source as one that can, or what stands in for it where it cannot."""
        return source if isinstance(source, cls) else cls()


class SparkReader(Capability):
    """Ranges are read by Spark itself, in parallel, rather than by `Source.read` in the driver."""

    session: SparkSession | None = None
    """Spark, which is set before anything is asked for."""
    tasks: int | None = None
    """By how many tasks a range is read; None is as many as serve it best. Followed with `takes_tasks`."""
    splits: bool = True
    """Whether several tasks may read one partition. Followed with `takes_tasks`."""

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

        `columns` are those the statement uses, system columns included; None means all but system ones.
        Not `careful`: the plan must fail (Spark's FAILFAST) on the first row that cannot be decoded, so
        that clean input pays nothing; the engine then asks again, `careful`, and gets `_bad`.
        The system column `_position`, a string, orders the rows of the source: a later row sorts after. In
        careful frames it also tells rows apart: each has one of its own, the same in every frame.
        A column `_weight` (+1, -1) is there only when the range retracts rows. A string column `_bad`
        may mark rows that could not be decoded: it is null in good rows, and in bad ones the other
        columns mean nothing (see `BadRecords`). Rows that are bad already have their place in `bad_rows`
        of the same range, so a retracted row is never marked.
        """
        return None


class Counted(Capability):
    """It knows how many rows a range has, without reading them."""

    def count(self, start: Offset | None, end: Offset) -> int | None:
        """How many rows came and went in a range; None where that is not known."""
        return None

    def counts(self, start: Offset | None, end: Offset) -> Mapping[str, int]:
        """How many of them each partition had; empty where partitions mean nothing to a user."""
        return {}

    def lags(self, offset: Offset) -> Mapping[str, int]:
        """How many records each partition had after `offset` when `latest` last looked."""
        return {}


class Partitioned(Capability):
    """Its partitions mean something to event time: each has a watermark of its own."""

    def partitions(self, start: Offset | None, end: Offset) -> Mapping[str, str] | None:
        """The partitions at `end`, each with SQL over `partition_columns` that is true of its rows.

        None where positions do not tell: they are then found by reading.
        """
        return {name: "_partition = '" + name.replace("\\", "\\\\").replace("'", "\\'") + "'" for name in end}

    def watermark(self, offset: Offset) -> datetime | None:
        """A time before which no row comes after `offset`, where the source knows; None: rows tell."""
        return None


class BadRecords(Capability):
    """It has records that may be impossible to decode, and knows where each is."""

    def has_bad_rows(self, start: Offset | None, end: Offset) -> bool:
        """Whether the source itself set rows of the range aside, which no frame shows (cheap)."""
        return False

    def bad_rows(self, start: Offset | None, end: Offset) -> Iterator[BadRow]:
        """The rows of a range that could not be decoded; asked only when `_bad` was seen."""
        return iter(())

    def located(self, positions: Collection[str], end: Offset) -> Mapping[str, Located]:
        """Where the records at these `_position`s are, and what they hold; those not known are left out.

        Asked for rows up to `end` that cannot be computed: users look for them at their source.
        """
        return {}


class Widening(Capability):
    """Its columns were discovered, and later rows may ask for more of them, or for wider types."""

    def new_columns(self, start: Offset | None, end: Offset) -> bool:
        """Whether rows of the range have columns that the schema lacks; asked before a range is read.

        If so, `widen` gives the schema with them.
        """
        return False

    def widen(self, start: Offset | None, end: Offset) -> pa.Schema | None:
        """A wider schema under which bad rows of the range decode, or None. Never for declared columns."""
        return None


class Replayable(Capability):
    """Single records can be read again, for dead letters that are replayed."""

    def again(
        self, spark: SparkSession, positions: Collection[str], end: Offset, columns: Sequence[str] | None
    ) -> DataFrame | None:
        """A careful frame with `_position`, of the records up to `end` that are at these positions.

        Records that are not there any more are left out. None: they are picked out of all that there is.
        """
        return None

    def reasons(self, positions: Collection[str], end: Offset) -> Mapping[str, str]:
        """Why the records at these positions, which `again` marks as bad, cannot be decoded."""
        return {}

    def oldest(self) -> Offset | None:
        """The position after which all can still be read; None: everything can."""
        return None

    def took(self, position: str) -> bool | None:
        """Whether the record at this position of a former statement's source is among what this one has read.

        False where reading began after it; None where it is not a record of this source, or nobody can tell.
        """
        return None


class Ordered(Capability):
    """Its positions do not sort as its rows follow each other."""

    def order(self, positions: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        """Values that sort as the rows with these `_position`s follow each other."""
        return positions


class Explaining(Capability):
    """It can tell what Spark's words mean when reading it fails."""

    def explained(self, said: str) -> VelostreamError | None:
        """The error for what Spark said when it read a frame; None when that was not about this source."""
        return None

    def note_lost(self, start: Offset | None, end: Offset) -> bool:
        """Find out which records of a range are gone: frames leave them out then, and `bad_rows` tells them.

        Asked after `explained` gave a SourceLostError; False when no more are gone than was known.
        """
        return False


class Awaited(Capability):
    """It says how long to wait between two looks for it while it is missing."""

    def retry_delay(self, attempt: int) -> timedelta:
        """How long to wait after an attempt, counted from 1, that found the source missing."""
        return timedelta(seconds=2)
