"""The contract of sources, kept by files, generated rows, tables and the sources of the test kit."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pytest

from velostream.config import Settings
from velostream.connectors.base import SourceContext
from velostream.engine.inputs.tables import TableSource
from velostream.engine.opening.connect import open_source
from velostream.model.statements import ColumnDef, SourceRef
from velostream.model.tables import TableSpec
from velostream.model.uri import Uri
from velostream.serving.table.store import TableStore
from velostream.testing.connector import CaseConnector, CaseOptions, Stage
from velostream.testing.contract import Row, SourceContract, World
from velostream.testing.given_log import Entry, GivenLog, GivenRow, Layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from velostream.connectors.base import Source

pytestmark = pytest.mark.spark
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


class Files(World):
    """A CSV file that grows and is edited."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "rows.csv"
        self._path.write_text("id,name\n")
        self._settings = Settings(data_dir=folder / "data")

    def open(self, *, resumed: bool = False, missing: bool = False) -> Source:
        uri = Uri(f"file://{self._folder / 'nowhere.csv' if missing else self._path}")
        ref = SourceRef("__source_1", uri, {"file.debounce": "0s"})
        spool = self._folder / "spool"
        known = COLUMNS if resumed else None
        return open_source(ref, self._settings, spool, known=known, once=False, table=True, resumed=resumed)

    def give(self, rows: Sequence[Row]) -> Sequence[Row]:
        with self._path.open("a", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows(rows)
        return rows

    def retract(self, row: Row) -> None:
        left = self._path.read_text().replace(f"{row[0]},{row[1]}\n", "", 1)
        self._path.write_text(left)

    def give_bad(self) -> bytes | None:
        with self._path.open("ab") as out:
            out.write(b"7,\xff\n")
        return b"7,\xff"


class Generated(World):
    """Rows made up from their number, as a clock moves on."""

    gaps: ClassVar[Mapping[str, str]] = {
        "test_a_missing_one_is_named": "what is made up is always there",
    }

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._now = datetime(2024, 1, 1, tzinfo=UTC)
        self._settings = Settings(data_dir=folder / "data")
        self._made = 0
        self._open(resumed=False).close()

    def open(self, *, resumed: bool = False, missing: bool = False) -> Source:
        return self._open(resumed=True)

    def _open(self, *, resumed: bool) -> Source:
        columns = (ColumnDef("id", pa.int64()), ColumnDef("name", pa.string()))
        ref = SourceRef("__source_1", Uri("datagen://trades?rows_per_second=1"), columns=columns)
        return open_source(
            ref,
            self._settings,
            self._folder / "spool",
            known=None,
            once=False,
            table=True,
            clock=lambda: self._now,
            resumed=resumed,
        )

    def give(self, rows: Sequence[Row]) -> Sequence[Row]:
        before, self._made = self._made, self._made + len(rows)
        self._now += timedelta(seconds=len(rows))
        # In Python, beside what Spark makes up.
        source = self._open(resumed=True)
        batches = list(source.read("rows", before, self._made))
        source.close()
        return [(row["id"], row["name"]) for batch in batches for row in batch.to_pylist()]


class Tables(World):
    """A table of ours, as other jobs read it."""

    gaps: ClassVar[Mapping[str, str]] = {
        "test_rows_have_system_columns": "rows of a table have no place outside",
        "test_a_missing_one_is_named": "the binder refuses a table that is not there",
    }

    def __init__(self, folder: Path) -> None:
        self._store = TableStore(folder / "tables")
        self._table = self._store.create(TableSpec("t", COLUMNS, ("id",)))

    def open(self, *, resumed: bool = False, missing: bool = False) -> Source:
        return TableSource(self._table, "contract")

    def give(self, rows: Sequence[Row]) -> Sequence[Row]:
        self._table.insert([{"id": id_, "name": name} for id_, name in rows])
        return rows

    def retract(self, row: Row) -> None:
        self._table.delete([row[0]])

    def close(self) -> None:
        self._store.close()


class Cases(World):
    """A source of the test kit, one step at a time."""

    gaps: ClassVar[Mapping[str, str]] = {
        "test_a_missing_one_is_named": "a case's source is there as soon as it is named",
    }

    def __init__(self, folder: Path) -> None:
        self._connector = CaseConnector()
        self._layout = Layout(parts=("0",), labels=("0",), takes_back=True)
        self._connector.stage = Stage(folder, {"s": self._layout})
        self._log = folder / "given" / "s.jsonl"
        self._number = 0
        self._numbers: dict[Row, int] = {}
        self._folder = folder

    def open(self, *, resumed: bool = False, missing: bool = False) -> Source:
        options = CaseOptions(name="s")
        source = self._connector.source(
            Uri("test://s"), options, SourceContext(self._folder, schema=COLUMNS, declared=True)
        )
        source.traits = self._connector.traits(options, table=True, once=False)
        return source

    def give(self, rows: Sequence[Row]) -> Sequence[Row]:
        self._append([self._row(row, 1) for row in rows])
        return rows

    def retract(self, row: Row) -> None:
        self._append([self._row(row, -1)])

    def give_bad(self) -> bytes | None:
        self._append([self._row(("x", "y"), 1)])
        return b"x, y"

    def _row(self, row: Row, weight: int) -> GivenRow:
        if weight > 0:
            self._number += 1
            self._numbers[row] = self._number
        number = self._numbers[row]
        cells = {"id": str(row[0]), "name": row[1]}
        at = datetime(2024, 1, 1, tzinfo=UTC)
        return GivenRow(number, "0", "0", number, weight, at, cells, f"{row[0]}, {row[1]}")

    def _append(self, rows: Sequence[GivenRow]) -> None:
        GivenLog(self._log, self._layout).append(Entry(tuple(rows)))


class TestFiles(SourceContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return Files(tmp_path)


class TestGenerated(SourceContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return Generated(tmp_path)


class TestTables(SourceContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[World]:
        world = Tables(tmp_path)
        yield world
        world.close()


class TestCases(SourceContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return Cases(tmp_path)
