"""What a source and a sink need beside their contract so that Spark's real-time mode can run between them.

There the rows never pass through Python: the source is a frame that does not end, the sink is one of Spark's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from velostream.connectors.base import SinkContext
    from velostream.model.changes import Offset
    from velostream.model.options import Options
    from velostream.model.uri import Uri

READ_BY_SPARK = ("json", "csv", "raw")
"""Formats that Spark SQL decodes, without Python."""
WRITTEN_BY_SPARK = ("json", "raw")
"""Formats for which Spark SQL writes the same bytes as Python does."""


class Endless(NamedTuple):
    """A source that Spark follows by itself."""

    frame: DataFrame
    """As `Source.frame`, careful: with `_bad`."""
    partitions: int
    """How many tasks read it, for as long as it is read."""
    edition: Mapping[str, str]
    """What tells that the source was made again meanwhile, so that the frame has to be, too."""


@runtime_checkable
class EndlessSource(Protocol):
    """A `Source` that Spark can follow by itself."""

    def endless(self, spark: SparkSession, start: Offset | None, columns: Sequence[str] | None) -> Endless:
        """All records after `start`, None being where the statement began."""

    def reached(self, told: str) -> Offset:
        """The position that Spark reports as its end offset, for a frame of the present edition."""

    @property
    def edition(self) -> Mapping[str, str]:
        """See `Endless`."""


@dataclass(frozen=True)
class RealtimeTarget:
    """How Spark's own sink writes the rows of a result."""

    name: str
    """What is written to, for messages."""
    form: str
    """Spark's name of the sink."""
    options: Mapping[str, str]
    columns: Mapping[str, str]
    """The columns that the sink wants, as SQL over those of the result."""
    finished: Mapping[str, str]
    """SQL over these columns, which makes them what is written."""
    refused: str
    """SQL over what is written: why a record can never be written, null where it can."""


@runtime_checkable
class RealtimeConnector(Protocol):
    """A `Connector` whose sinks Spark can write by itself."""

    def realtime_target(self, uri: Uri, options: Options, context: SinkContext) -> RealtimeTarget:
        """How to; UnsupportedError says what cannot be written so."""
