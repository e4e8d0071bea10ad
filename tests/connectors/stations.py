"""Connectors of one's own, for tests: records of weather stations, in a folder that every process sees.

Each file `NAME.jsonl` is a partition, with a record in each line.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pydantic import Field

from velostream.connectors import (
    Connector,
    Delivery,
    NumberedSource,
    Partitioned,
    Sink,
    SinkContext,
    Source,
    SourceContext,
    SourceOptions,
    TaskReader,
    Uri,
)
from velostream.errors import SourceAuthError, SourceDataError, SourceMissingError, SourceNetworkError
from velostream.model.changes import BadRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from velostream.model.changes import Offset

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
READ = COLUMNS.append(pa.field("_offset", pa.int64()))
SEEN: list[tuple[Any, ...]] = []
"""What the engine asked sources of this process for, in order."""


class StationOptions(SourceOptions):
    """What may be said of stations."""

    folder: str = Field(description="folder of the records", json_schema_extra={"reaches": "file"})
    how: Literal["rows", "tasks", "bytes", "live"] = Field("rows", description="how they are read")
    api_key: str | None = Field(None, alias="api.key", description="key, by reference")
    ends: bool = Field(False, description="whether no record can follow those that are there")


class Stations(NumberedSource):
    """Rows that are numbered; records that are no JSON are bad."""

    def __init__(self, options: StationOptions, context: SourceContext) -> None:
        self._folder, self._options, self._context = Path(options.folder), options, context
        SEEN.append(("open", context.owner))

    def discover(self) -> pa.Schema:
        if not self._folder.is_dir():
            raise SourceMissingError(f"no folder {self._folder}", hint="it holds the records of stations")
        return COLUMNS

    def newest(self) -> Mapping[str, int]:
        for name, kind in FAILURES.items():
            if (self._folder / name).exists():
                raise kind(f"stations: {name}")
        return {path.stem: path.read_bytes().count(b"\n") for path in sorted(self._folder.glob("*.jsonl"))}

    def latest(self, after: Offset | None) -> Offset:
        SEEN.append(("latest", after))
        return super().latest(after)

    def rows(self, partition: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
        SEEN.append(("rows", partition, first, last))
        if (self._folder / "refuse").exists():
            raise SourceDataError("stations: what came is no record", hint="remove the file refuse")
        lines = islice(enumerate(_lines(self._folder / f"{partition}.jsonl")), first, last)
        found = [(decoded, at) for at, line in lines if (decoded := _decoded(line)) is not None]
        # As few rows at a time as may be: the engine makes batches of its own size.
        for each in found:
            yield pa.RecordBatch.from_pylist([{**each[0], "_offset": each[1]}], schema=READ)

    def has_bad_rows(self, start: Offset | None, end: Offset) -> bool:
        return any(True for _ in self.bad_rows(start, end))

    def bad_rows(self, start: Offset | None, end: Offset) -> Iterator[BadRow]:
        for name, last in end.items():
            first = (start or {}).get(name, 0)
            lines = _lines(self._folder / f"{name}.jsonl") if first < last else []
            for at, line in enumerate(lines[first:last], first):
                if _decoded(line) is None:
                    yield BadRow("no JSON", "stations", name, str(at), line)

    def finished(self, offset: Offset) -> bool:
        return self._options.ends

    def commit(self, offset: Offset) -> None:
        SEEN.append(("commit", offset))

    def close(self) -> None:
        SEEN.append(("close", self._context.owner))


class StationsByTasks(TaskReader, Stations):
    """The same, read by Spark's tasks."""


class StationsByBytes(Source):
    """Positions of its own: how far each file was read, in bytes, and how many records that were."""

    def __init__(self, options: StationOptions, context: SourceContext) -> None:
        self._folder = Path(options.folder)

    def discover(self) -> pa.Schema:
        if not self._folder.is_dir():
            raise SourceMissingError(f"no folder {self._folder}", hint="it holds the records of stations")
        return COLUMNS

    def latest(self, after: Offset | None) -> Offset:
        SEEN.append(("latest", after))
        found = {path.stem: path.read_bytes() for path in sorted(self._folder.glob("*.jsonl"))}
        return {name: {"bytes": len(text), "records": text.count(b"\n")} for name, text in found.items()}

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        first = start or {"bytes": 0, "records": 0}
        with (self._folder / f"{partition}.jsonl").open("rb") as file:
            file.seek(first["bytes"])
            lines = file.read(end["bytes"] - first["bytes"]).splitlines()
        rows = [
            {**json.loads(line), "_offset": at, "_position": f"{at:012d} {partition}"}
            for at, line in enumerate(lines, first["records"])
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=READ.append(pa.field("_position", pa.string())))


class LiveStations(Partitioned, Stations):
    """Knows how far time is, from a file of its own: an hour of the first of January."""

    def watermark(self, offset: Offset) -> datetime | None:
        clock = self._folder / "hour"
        return datetime(2026, 1, 1, int(clock.read_text()), tzinfo=UTC) if clock.exists() else None


FAILURES = {"unreachable": SourceNetworkError, "locked": SourceAuthError}
"""Files whose presence makes polls fail, and how."""
HOW: Mapping[str, Any] = {
    "rows": Stations,
    "tasks": StationsByTasks,
    "bytes": StationsByBytes,
    "live": LiveStations,
}


class Copies(Sink):
    """A file of each step; what it cannot write, a name that is empty, it refuses. At least once."""

    delivery = Delivery.AT_LEAST_ONCE

    def __init__(self, folder: str, context: SinkContext) -> None:
        self._folder, self._refuse = Path(folder), context.refuse

    def recover(self, recorded: Mapping[str, Any] | None) -> None:
        self._folder.mkdir(exist_ok=True)

    def write(self, batch: int, rows: pa.Table) -> Mapping[str, Any]:
        good = [row for row in rows.to_pylist() if row["name"]]
        bad = [row for row in rows.to_pylist() if not row["name"]]
        if bad:
            self._refuse(
                [BadRow("no name", "stations", "copies", str(batch), json.dumps(row).encode()) for row in bad]
            )
        with (self._folder / f"{batch:06d}.json").open("a") as out:
            out.writelines(f"{json.dumps(row)}\n" for row in good)
        return {"batch": batch}


class StationsConnector(Connector):
    """stations:///folder."""

    name = "stations"
    schemes = ("stations",)
    functions = ("stations",)
    Options = StationOptions
    address = "folder"
    follows = "new records"
    delivery = (Delivery.AT_LEAST_ONCE,)

    def source(self, uri: Uri, options: Any, context: SourceContext) -> Source:
        source: Source = HOW[options.how](options, context)
        return source

    def sink(self, uri: Uri, options: Any, context: SinkContext) -> Sink:
        return Copies(options.folder, context)


def add(folder: Path, station: str, *records: object) -> None:
    """Records that a station sends; text is sent as it is."""
    with (folder / f"{station}.jsonl").open("a") as out:
        out.writelines(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in records)
        out.flush()
        os.fsync(out.fileno())


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
