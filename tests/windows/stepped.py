"""A source whose rows a test hands out step by step, each step one micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import duckdb
import pyarrow as pa
from pydantic import Field

from velostream.connectors.base import Connector, Sink, Source
from velostream.connectors.registry import default_registry
from velostream.model.options import Options
from velostream.model.traits import SourceTraits

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])


class Steps:
    """What one source has: for each partition its rows, and how far each step goes."""

    def __init__(self, partitions: int) -> None:
        self.rows: dict[str, list[tuple[Any, ...]]] = {str(number): [] for number in range(partitions)}
        self.ends: list[dict[str, int]] = []
        self.over = False
        self.rereadable = True
        self.written: list[pa.Table] = []
        """What statements wrote to `stepped://name`, each write one table."""

    def give(self, rows: dict[str, list[tuple[Any, ...]]]) -> None:
        """Rows of one more step."""
        for partition, more in rows.items():
            self.rows[partition] += more
        self.ends.append({partition: len(rows) for partition, rows in self.rows.items()})


class SteppedOptions(Options):
    name: str = Field("", description="which steps")


class SteppedSource(Source):
    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def discover(self) -> pa.Schema:
        return SCHEMA

    def latest(self, after: Any) -> dict[str, int]:
        have = after or dict.fromkeys(self._steps.rows, 0)
        for end in list(self._steps.ends):
            if any(end[partition] > have.get(partition, 0) for partition in end):
                return end
        return have

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        rows = self._steps.rows[partition][start or 0 : end]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        yield pa.record_batch(
            [*arrays, pa.array([partition] * len(rows), pa.string())], names=[*SCHEMA.names, "_partition"]
        )

    def finished(self, offset: Any) -> bool:
        return self._steps.over and (not self._steps.ends or offset == self._steps.ends[-1])


class SteppedSink(Sink):
    takes_deletes = True

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def write(self, batch: int, rows: pa.Table) -> Any:
        self._steps.written.append(rows)
        return {"writes": len(self._steps.written)}

    def recover(self, recorded: Any) -> None:
        del self._steps.written[recorded["writes"] if recorded else 0 :]


class SteppedConnector(Connector):
    name = "stepped"
    schemes = ("stepped",)
    Options = SteppedOptions
    upserts = True
    all: ClassVar[dict[str, Steps]] = {}

    @staticmethod
    def parse(uri: Any) -> dict[str, str]:
        return {"name": str(uri).removeprefix("stepped://")}

    def traits(self, options: Any, *, table: bool, once: bool) -> SourceTraits:
        return SourceTraits(rereadable=self.all[options.name].rereadable)

    def source(self, uri: Any, options: Any, context: Any) -> Source:
        return SteppedSource(self.all[options.name])

    def sink(self, uri: Any, options: Any, context: Any) -> Sink:
        return SteppedSink(self.all[options.name])


def stepped(name: str, partitions: int = 1) -> Steps:
    """Make a source `stepped://name`."""
    if "stepped" not in default_registry().names():
        default_registry().register(SteppedConnector)
    SteppedConnector.all[name] = made = Steps(partitions)
    return made


def in_duckdb(**relations: list[tuple[Any, ...]]) -> duckdb.DuckDBPyConnection:
    """A connection in UTC with these events, each under its name."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, events in relations.items():
        columns = list(zip(*events, strict=True)) if events else [()] * len(SCHEMA)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        connection.register(name, pa.table(arrays, schema=SCHEMA))
    return connection
