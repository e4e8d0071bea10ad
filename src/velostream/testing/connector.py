"""test://name: sources that a case fills, and sinks that it checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import Field

from velostream.connectors.base import Connector, Sink, SinkContext, Source, SourceContext
from velostream.connectors.capabilities import BadRecords, Counted, Partitioned
from velostream.disk.private import make_folder, open_file
from velostream.errors import InternalError, SourceConfigError
from velostream.model.changes import BadRow
from velostream.model.columns import ENTERED, OFFSET, PARTITION, POSITION, WEIGHT
from velostream.model.options import Options
from velostream.model.traits import SourceTraits
from velostream.testing.cells import value_of
from velostream.testing.given_log import GivenReader, Layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from velostream.model.changes import Offset
    from velostream.model.options import Options as AnyOptions
    from velostream.model.uri import Uri
    from velostream.testing.given_log import Entry, GivenRow

NAME = "test"
LOOK = timedelta(milliseconds=5)
"""The polling interval of jobs: a case is small, and waits for them at every step."""
_STAMP = pa.timestamp("us", tz="UTC")


class CaseOptions(Options):
    """A test source has no property but its name, from its URI."""

    name: str = Field("", description="which of the case's sources or sinks")


@dataclass
class Stage:
    """The sources and sinks of the current case."""

    folder: Path
    layouts: Mapping[str, Layout] = field(default_factory=dict)

    def given(self, source: str) -> Path:
        """The log of a source."""
        return self.folder / "given" / f"{source}.jsonl"

    def written(self, sink: str) -> Path:
        """The folder of a sink: one file per write."""
        return self.folder / "written" / sink


class CaseConnector(Connector):
    """Registered while cases run; `stage` is set for each."""

    name = NAME
    schemes = (NAME,)
    Options = CaseOptions
    upserts = True

    def __init__(self) -> None:
        self.stage: Stage | None = None

    @staticmethod
    def parse(uri: Uri) -> Mapping[str, str]:
        """See `Connector`."""
        return {"name": uri.rest}

    def traits(self, options: AnyOptions, *, table: bool, once: bool) -> SourceTraits:
        """See `Connector`: as the case lays out its rows."""
        assert isinstance(options, CaseOptions)
        layout = self.stage.layouts.get(options.name) if self.stage is not None else None
        return SourceTraits(only_grows=layout is None or not layout.takes_back, poll_interval=LOOK)

    def source(self, uri: Uri, options: AnyOptions, context: SourceContext) -> Source:
        """Open a source that the case fills."""
        name = uri.rest
        stage = self._stage()
        return CaseSource(name, context, stage.given(name), stage.layouts.get(name, Layout()))

    def sole_place(self, uri: Uri, options: AnyOptions) -> str | None:
        """See `Connector`: the output is compared as a whole."""
        return uri.rest

    def sink(self, uri: Uri, options: AnyOptions, context: SinkContext) -> Sink:
        """Open a sink that the case checks."""
        return CaseSink(self._stage().written(uri.rest))

    def _stage(self) -> Stage:
        if self.stage is None:
            raise InternalError("test:// was opened while no case runs")
        return self.stage


class CaseSource(Source, Counted, Partitioned, BadRecords):
    """Rows of a case, one step per micro-batch. A position is the number of steps, in each partition.

    A row with an invalid cell cannot be decoded, as at any other source.
    """

    def __init__(self, name: str, context: SourceContext, log: Path, layout: Layout) -> None:
        self._name = name
        self._schema = context.schema
        self._reader = GivenReader(log)
        self._layout = layout

    def discover(self) -> pa.Schema:
        """See `Source`; columns are declared."""
        if self._schema is None:
            raise SourceConfigError(
                f"test://{self._name} does not say which columns it has",
                hint=f"declare them: CREATE SOURCE {self._name} (id BIGINT, …) FROM test://{self._name}",
            )
        return self._schema

    def latest(self, after: Offset | None) -> Offset:
        """See `Source`; one step further, so that each is a micro-batch in every way of running the case."""
        end = min(self._steps(after) + 1, len(self._reader.entries()))
        return dict.fromkeys(self._layout.parts, end)

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        rows = [row for row in self._rows(start, end) if row.part == partition]
        if start is None:
            gone = {row.number for row in rows if row.weight < 0}
            rows = [row for row in rows if row.number not in gone]
        decoded = [(row, values) for row in rows if not isinstance(values := self._decoded(row), str)]
        # Also without rows: the result still has the system columns.
        yield self._batch(decoded, weighted=start is not None and self._layout.takes_back)

    def count(self, start: Offset | None, end: Offset) -> int:
        """See `Counted`."""
        return sum(1 for _ in self._between(start, end))

    def has_bad_rows(self, start: Offset | None, end: Offset) -> bool:
        """See `BadRecords`."""
        return any(True for _ in self.bad_rows(start, end))

    def bad_rows(self, start: Offset | None, end: Offset) -> Iterator[BadRow]:
        """See `BadRecords`."""
        for row in self._between(start, end):
            reason = self._decoded(row)
            if row.weight > 0 and isinstance(reason, str):
                yield BadRow(reason, f"test://{self._name}", row.label, str(row.offset), row.text.encode())

    def partitions(self, start: Offset | None, end: Offset) -> Mapping[str, str] | None:
        """The partitions of the rows, each with an SQL condition that selects its rows."""
        return {label: f"_partition = '{label}'" for label in self._layout.labels}

    def watermark(self, offset: Offset) -> datetime | None:
        """The last event time that the case advanced to, in all partitions; None: derived from rows."""
        marks = [entry.watermark for entry in self._until(offset) if entry.watermark is not None]
        return max(marks, default=None)

    def finished(self, offset: Offset) -> bool:
        """See `Source`."""
        return any(entry.ended for entry in self._until(offset))

    # --- rows ---------------------------------------------------------------------------------------------

    def _steps(self, offset: Offset | None) -> int:
        return int(offset[self._layout.parts[0]]) if offset else 0

    def _until(self, offset: Offset) -> list[Entry]:
        return self._reader.entries()[: self._steps(offset)]

    def _rows(self, start: Any, end: Any) -> Iterator[GivenRow]:
        for entry in self._reader.entries()[int(start or 0) : int(end)]:
            yield from entry.rows

    def _between(self, start: Offset | None, end: Offset) -> Iterator[GivenRow]:
        return self._rows(self._steps(start), self._steps(end))

    def _decoded(self, row: GivenRow) -> dict[str, Any] | str:
        """The values of a row, or why it is invalid."""
        values = {}
        for column in self.discover():
            try:
                values[column.name] = value_of(row.cells.get(column.name), column.type)
            except ValueError as exc:
                return f"{column.name}: {exc}"
        return values

    def _batch(self, decoded: list[tuple[GivenRow, dict[str, Any]]], *, weighted: bool) -> pa.RecordBatch:
        schema = self.discover()
        rows = [row for row, _ in decoded]
        arrays = {f.name: pa.array([values[f.name] for _, values in decoded], f.type) for f in schema}
        arrays[ENTERED] = pa.array([row.entered_at for row in rows], _STAMP)
        arrays[PARTITION] = pa.array([row.label for row in rows], pa.string())
        arrays[OFFSET] = pa.array([row.offset for row in rows], pa.int64())
        arrays[POSITION] = pa.array([f"{row.number:012d}" for row in rows], pa.string())
        if weighted:
            arrays[WEIGHT] = pa.array([row.weight for row in rows], pa.int64())
        return pa.RecordBatch.from_pydict(arrays)


class CaseSink(Sink):
    """Keeps each write as a file; after a crash those that were not recorded are removed."""

    takes_deletes = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._next = 0

    def write(self, batch: int, rows: pa.Table) -> Mapping[str, Any]:
        """See `Sink`."""
        make_folder(self._folder)
        with (
            open_file(self._folder / f"{self._next:06d}.arrow", "wb") as out,
            pa.ipc.new_file(out, rows.schema) as writer,
        ):
            writer.write_table(rows)
        self._next += 1
        return {"writes": self._next}

    def recover(self, recorded: Mapping[str, Any] | None) -> None:
        """See `Sink`."""
        self._next = int(recorded["writes"]) if recorded else 0
        for path in written_files(self._folder)[self._next :]:
            path.unlink()


def written_files(folder: Path) -> list[Path]:
    """The files written to a sink, in order."""
    return sorted(folder.glob("*.arrow"))
