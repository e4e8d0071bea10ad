"""Traits of a source, known before it is opened: from its connector and the statement's properties."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from velostream.model.columns import PARTITION

if TYPE_CHECKING:
    from velostream.model.changes import Messages


@dataclass(frozen=True)
class SourceTraits:
    """What decides, with the columns, how a statement over the source is run.

    The defaults are those of a source of Arrow batches whose rows are only added.
    """

    only_grows: bool = True
    """False where rows may be retracted: `read` then yields rows with a negative `_weight`."""
    messages: Messages | None = None
    """How later rows replace earlier ones of the same key; None where rows are only added."""
    positioned: bool = True
    """Whether rows have a unique `_position`; rows of a multiset do not."""
    rereadable: bool = True
    """Whether everything from the beginning can be read again at any time, at a bearable cost."""
    partition_columns: tuple[str, ...] = (PARTITION,)
    """The system columns that identify a row's partition."""
    partition_sql: str = PARTITION
    """SQL over these that gives the partition's name in positions."""
    frames_in_order: bool = False
    """Whether the rows of a partition are in order in a frame, without sorting."""
    takes_tasks: bool = False
    """Whether it reads a range with as many tasks as requested; see `SparkReader`."""
    needs: tuple[str, ...] = ()
    """Sets of jars that Spark needs for it, by their names in `spark.jars`."""
    poll_interval: timedelta = timedelta(milliseconds=100)
    """The delay between two polls that found nothing."""
    once: bool = False
    """Whether everything that is there is read, and nothing afterwards."""
    unseen: str | None = None
    """Which changes are never seen, by the way that the statement chose: told when it is made."""
    wait_timeout: timedelta = timedelta(0)
    """How long creation waits for a missing source."""

    @property
    def upserts(self) -> bool:
        """Whether later rows replace earlier ones of the same key in every query."""
        return self.messages is not None and self.messages.upserts
