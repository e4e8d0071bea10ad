"""A data directory of the format before opens as it is, and goes on.

`format1.tar.gz` was made by the last version that wrote format 1: files that catalogue and jobs keep had no
checksum there, or did not say whose they are.
"""

from __future__ import annotations

import json
import tarfile
import zlib
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from velostream.config import load
from velostream.runtime.datadir import FORMAT
from velostream.runtime.instance import Instance

if TYPE_CHECKING:
    from velostream.runtime.instance import Instance as Opened

MADE_IN = "/tmp/format1"
ANN, BOB, CAT = ("ann", 30), ("bob", 40), ("cat", 50)


@pytest.fixture
def before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory and its sources, as if they had always been here."""
    monkeypatch.setenv("VELO_FIXTURE", str(tmp_path))
    with tarfile.open(Path(__file__).with_name("format1.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    for journal in (tmp_path / "data" / "jobs").glob("*/sources/*/journal"):
        bodies = [line.partition(" ")[2] for line in journal.read_text().splitlines()]
        moved = [body.replace(MADE_IN, str(tmp_path)) for body in bodies]
        journal.write_text("".join(f"{zlib.crc32(body.encode()):08x} {body}\n" for body in moved))
    return tmp_path


def rows(database: Opened, table: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in database.sql(f"SELECT * FROM {table}"))


def test_it_opens_as_it_is(before: Path) -> None:
    with Instance(load(None, data_dir=before / "data"), read_only=True) as database:
        assert rows(database, "profiles") == [ANN, BOB, CAT]
        assert rows(database, "grown") == [BOB, CAT]
        assert rows(database, "totals") == [("ann", Decimal("6.50"), 2), ("bob", Decimal("2.25"), 2)]
        assert rows(database, "made") == [(100,)]
        assert [report.problem for report in database.verify() if not report.good] == []
    assert json.loads((before / "data" / "catalog.json").read_text())["format"] == 1


def test_it_goes_on_and_is_of_this_format_then(before: Path, spark, wait_until) -> None:
    orders = before / "orders.csv"
    text = orders.read_text().replace("2,bob,1.25,2026-01-01T00:01:00Z\n", "")
    orders.write_text(text + "5,cat,3.00,2026-01-01T00:04:00Z\n")
    expected = [("ann", Decimal("6.50"), 2), ("bob", Decimal("1.00"), 1), ("cat", Decimal("3.00"), 1)]
    for _ in range(2):
        with Instance(load(None, data_dir=before / "data")) as database:
            wait_until(lambda db=database: rows(db, "totals") == expected, 60)
            assert database.wait_idle(60)
            assert rows(database, "recent") == [(1, "ann"), (3, "ann"), (4, "bob"), (5, "cat")]
            assert [row[0] for row in rows(database, "joined")] == ["ann", "bob", "cat"]
            assert rows(database, "made") == [(100,)]
            assert not [job for job in database.jobs() if job.reason is not None]
    lines = [line for part in (before / "out").iterdir() for line in part.read_text().splitlines()]
    assert sorted(json.loads(line)["id"] for line in lines) == [1, 2, 3, 4, 5]
    assert json.loads((before / "data" / "catalog.json").read_text())["format"] == FORMAT
    for table in (before / "data" / "tables").iterdir():
        assert json.loads((table / "table.json").read_text())["of"]
