"""Changing one's mind on the command line: plan, replace and alter, while `velo run` holds the directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Process
    from tests.conftest import WaitUntil

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]

APP = """
CREATE TABLE orders AS SELECT city, amount FROM file://orders.csv WITH ("file.debounce" = "20ms");
CREATE TABLE totals AS SELECT city, SUM(amount) AS total FROM orders GROUP BY city;
CREATE TABLE notes (city STRING PRIMARY KEY, note STRING);
INSERT INTO notes VALUES ('Rome', 'warm');
"""
DOUBLED = APP.replace(
    "CREATE TABLE orders AS SELECT city, amount",
    "CREATE OR REPLACE TABLE orders AS SELECT city, amount * 2 AS amount",
)


def rows(process: Process) -> list[dict[str, object]]:
    assert process.end() == 0, process.err
    return [json.loads(line) for line in process.out.splitlines()]


def done(process: Process) -> str:
    assert process.end() == 0, process.err
    return process.err + process.out


def test_plan_replace_and_alter(tmp_path: Path, start: Callable[..., Process], wait_until: WaitUntil) -> None:
    (tmp_path / "orders.csv").write_text("city,amount\nRome,1\nPisa,2\nRome,3\n")
    (tmp_path / "app.sql").write_text(APP)
    totals = ("sql", "SELECT * FROM totals ORDER BY city", "--format", "json")
    planned = start("plan", "app.sql", "--exit-code", "--format", "json")
    assert planned.end() == 5
    assert [json.loads(line)["action"] for line in planned.out.splitlines()] == ["create"] * 3 + ["run"]

    run = start("run", "app.sql")
    wait_until(lambda: not run.running or "Ctrl-C" in run.err, 120)
    assert run.running, run.err
    assert rows(start(*totals)) == [{"city": "Pisa", "total": 2}, {"city": "Rome", "total": 4}]
    assert start("plan", "app.sql", "--exit-code").end() == 0
    (tmp_path / "app.sql").write_text(DOUBLED)
    steps = rows(start("plan", "app.sql", "--format", "json"))
    assert [(step["action"], step["name"]) for step in steps] == [
        ("replace", "orders"),
        ("rebuild", "totals"),
        ("unchanged", "notes"),
        ("unchanged", "notes"),
    ]
    assert "now 3 rows" in str(steps[0]["detail"])
    (tmp_path / "other.sql").write_text(APP.replace("SUM(", "MAX("))
    elsewhere = {"VELOSTREAM_DATA_DIR": str(tmp_path / "elsewhere")}
    changed = start("check", "other.sql", "--data-dir", str(tmp_path / "data"), **elsewhere)
    assert changed.end() == 1
    assert 'other.sql:3:1: "totals" was created by another statement in this data directory' in changed.err
    assert start("check", "other.sql", **elsewhere).end() == 0
    assert rows(start(*totals)) == [{"city": "Pisa", "total": 2}, {"city": "Rome", "total": 4}]

    told = done(start("sql", "ALTER TABLE notes ADD COLUMN stars INT DEFAULT 3; SELECT * FROM notes"))
    assert "stars" in told
    assert "warm" in told
    assert "totals" in done(start("sql", "ALTER TABLE orders RENAME TO bought"))
    assert "1 row deleted" in done(start("sql", "TRUNCATE notes"))
    assert rows(start(*totals)) == [{"city": "Pisa", "total": 2}, {"city": "Rome", "total": 4}]
    done(start("sql", "ALTER TABLE bought RENAME TO orders; ALTER TABLE notes RENAME TO kept"))
    run.interrupt()
    assert run.end() == 130

    again = start("run", "app.sql")
    wait_until(lambda: not again.running or "Ctrl-C" in again.err, 120)
    assert 'table "orders" replaced, and with it "totals"' in again.err, again.err
    plan = [
        'replaced: table "orders" from file://orders.csv; now 3 rows',
        'rebuilt: table "totals" from orders',
    ]
    assert all(line in again.err.partition('table "orders" replaced')[0] for line in plan)
    assert "switched together once all of it has loaded; until then the old ones answer" in again.err
    assert 'table "kept" is not in this file' in again.err
    assert rows(start(*totals)) == [{"city": "Pisa", "total": 4}, {"city": "Rome", "total": 8}]
    again.interrupt()
    assert again.end() == 130
