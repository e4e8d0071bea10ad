"""What a source is, known before it is opened: from its connector and from what the statement says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from velostream.model.columns import PARTITION

if TYPE_CHECKING:
    from velostream.model.changes import Messages


@dataclass(frozen=True)
class SourceTraits:
    """Decides, with the columns, how a statement over the source is run; EXPLAIN tells it without opening.

    The defaults are those of a source that hands over Arrow batches of rows that only come.
    """

    only_grows: bool = True
    """False where rows may be retracted: `read` then yields rows with a negative `_weight`."""
    messages: Messages | None = None
    """How later rows replace earlier ones of the same key; None where rows are only added."""
    positioned: bool = True
    """Whether rows have a `_position` that tells equal ones apart; rows of a set do not."""
    rereadable: bool = True
    """Whether everything from the beginning can be read again at any time, at a bearable cost."""
    partition_columns: tuple[str, ...] = (PARTITION,)
    """The system columns that tell a row's partition."""
    partition_sql: str = PARTITION
    """SQL over these that names the partition as positions do."""
    frames_in_order: bool = False
    """Whether the rows of a partition come out of a frame as they follow each other, without being sorted."""
    takes_tasks: bool = False
    """Whether it reads a range by as many tasks as it is told; see `SparkReader`."""
    needs: tuple[str, ...] = ()
    """Sets of jars that Spark needs for it, by their names in `spark.jars`."""
    poll_interval: timedelta = timedelta(milliseconds=100)
    """How long a job lets pass between two looks that found nothing."""
    wait_timeout: timedelta = timedelta(0)
    """How long creation waits for a source that is missing."""

    @property
    def upserts(self) -> bool:
        """Whether later rows replace earlier ones of the same key in every query."""
        return self.messages is not None and self.messages.upserts
