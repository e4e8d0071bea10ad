"""`velo tables --verify`, on a directory that nobody holds and through the process that holds it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from velostream.config import load
from velostream.runtime.instance import Instance
from velostream.runtime.socket.client import Client
from velostream.serving.durable.verification import FileState

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Velo


@pytest.fixture
def filled(data_dir: Path) -> Path:
    """Two tables, closed; the folder of the first."""
    with Instance(load(None, data_dir=data_dir)) as database:
        for name in ("orders", "users"):
            database.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, v STRING)")
            for number in range(4):
                database.sql(f"INSERT INTO {name} VALUES ({number}, 'x')")
                database.table(name).checkpoint()
    return data_dir / "tables" / "orders"


def harm(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)


def test_nothing_to_verify(velo: Velo) -> None:
    ran = velo("tables", "--verify")
    assert (ran.code, ran.out) == (0, "")
    assert "no tables" in ran.err


def test_whole_tables_are_listed_file_by_file(velo: Velo, filled: Path) -> None:
    before = {path: path.read_bytes() for path in filled.iterdir()}
    ran = velo("tables", "--verify")
    assert ran.code == 0, ran.err
    assert "8 rows" in ran.err
    for path in filled.iterdir():
        assert path.name in ran.out
    rows = [json.loads(line) for line in velo("tables", "--verify", "--format", "json").out.splitlines()]
    assert {row["table"] for row in rows} == {"dead_letters", "orders", "users"}
    assert {row["state"] for row in rows} == {"good"}
    assert {path: path.read_bytes() for path in filled.iterdir()} == before, "verifying must not write"


def test_damage_that_costs_nothing_is_told_and_the_table_still_opens(velo: Velo, filled: Path) -> None:
    path = max(filled.glob("snapshot-*"))
    harm(path)
    ran = velo("tables", "--verify")
    assert ran.code == 1
    assert 'table "orders"' in ran.err
    assert path.name in ran.err
    assert "no row is lost" in ran.err
    assert "users" not in ran.err
    assert velo("sql", "SELECT COUNT(*) AS n FROM orders", "--format", "csv").out.split() == ["n", "4"]


def test_damage_that_loses_rows_is_refused_with_what_to_do(velo: Velo, filled: Path) -> None:
    path = filled / "table.json"
    harm(path)
    ran = velo("tables", "--verify", "--format", "json")
    assert ran.code == 1
    (told,) = [json.loads(line) for line in ran.err.splitlines() if line.startswith("{")]
    assert told["code"] == "data_dir.corrupt"
    assert "table.json" in told["message"]
    assert "copy" in told["hint"]
    (row,) = [row for row in map(json.loads, ran.out.splitlines()) if row["state"] != "good"]
    assert (row["table"], row["file"], row["state"]) == ("orders", "table.json", "damaged")
    # The others are not taken down with it.
    listed = [json.loads(line) for line in velo("tables", "--format", "json").out.splitlines()]
    assert {row["name"]: row["health"] for row in listed}["orders"] == "failed"
    assert {row["name"]: row["rows"] for row in listed}["users"] == 4
    used = velo("sql", "SELECT * FROM orders")
    assert used.code == 1
    assert "table.json" in used.err


def test_a_damaged_table_can_be_dropped_and_made_again(velo: Velo, filled: Path) -> None:
    harm(max(path for path in filled.glob("log-*") if path.stat().st_size))
    for path in filled.glob("snapshot-*"):
        harm(path)
    assert velo("tables", "--verify").code == 1
    assert velo("sql", "DROP TABLE orders").code == 0
    assert velo("sql", "CREATE TABLE orders (id INT PRIMARY KEY, v STRING)").code == 0
    assert velo("tables", "--verify").code == 0


def test_the_process_that_holds_the_directory_verifies_it(filled: Path, data_dir: Path) -> None:
    with Instance(load(None, data_dir=data_dir)) as database:
        database.sql("INSERT INTO orders VALUES (100, 'y')")
        client = Client(data_dir)
        reports = {report.name: report for report in client.verify()}
        assert all(report.good for report in reports.values())
        assert (reports["orders"].rows, reports["orders"].version) == (5, 5)
        harm(max(filled.glob("snapshot-*")))
        reports = {report.name: report for report in client.verify()}
        assert (reports["orders"].good, reports["users"].good) == (False, True)
        assert [file.name for file in reports["orders"].files if file.state is FileState.DAMAGED] == [
            max(filled.glob("snapshot-*")).name
        ]
