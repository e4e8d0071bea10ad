"""Capabilities of sources and sinks for Spark's real-time mode.

In this mode rows never pass through Python: the source is a streaming frame, the sink is one of Spark's own.
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
    """A source as a streaming frame of Spark."""

    frame: DataFrame
    """Like `SparkReader.frame`, careful: with `_bad`."""
    partitions: int
    """The number of tasks that read it continuously."""
    edition: Mapping[str, str]
    """Changes when the source was recreated, so that the frame has to be as well."""


@runtime_checkable
class EndlessSource(Protocol):
    """A `Source` that Spark can follow by itself."""

    def endless(self, spark: SparkSession, start: Offset | None, columns: Sequence[str] | None) -> Endless:
        """All records after `start`; None: from where the statement began."""

    def reached(self, told: str) -> Offset:
        """The position of an end offset that Spark reports, for a frame of the current edition."""

    @property
    def edition(self) -> Mapping[str, str]:
        """See `Endless`."""


@dataclass(frozen=True)
class RealtimeTarget:
    """How Spark's own sink writes the rows of a result."""

    name: str
    """The target's name, for messages."""
    form: str
    """Spark's name of the sink."""
    options: Mapping[str, str]
    columns: Mapping[str, str]
    """The columns that the sink needs, as SQL over the columns of the result."""
    finished: Mapping[str, str]
    """SQL over these columns, which gives what is written."""
    refused: str
    """SQL over what is written: why a record can never be written, null where it can."""


@runtime_checkable
class RealtimeConnector(Protocol):
    """A `Connector` whose sources Spark can read, and whose sinks it can write, by itself."""

    def why_not_read(self, options: Options) -> str | None:
        """Why Spark cannot read a source with these options row by row; None if it can."""

    def why_not_written(self, options: Options) -> str | None:
        """Why Spark cannot write to a sink with these options row by row; None if it can."""

    def realtime_target(self, uri: Uri, options: Options, context: SinkContext) -> RealtimeTarget:
        """The target for Spark; UnsupportedError says what Spark cannot write."""
