from __future__ import annotations

import contextlib
import json
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Process
    from tests.conftest import WaitUntil

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]

APP = """
CREATE TABLE totals AS SELECT city, COUNT(*) AS n, SUM(amount) AS total FROM file://orders.csv GROUP BY city;
CREATE TABLE cities (city STRING PRIMARY KEY, country STRING);
CREATE TABLE countries AS
  SELECT c.country, SUM(t.total) AS total FROM totals t JOIN cities c ON c.city = t.city GROUP BY c.country;
INSERT INTO cities VALUES ('Bern', 'CH'), ('Rome', 'IT'), ('Pisa', 'IT');
SELECT city, n FROM totals ORDER BY city;
"""
ORDERS = "city,amount\nRome,1.10\nPisa,2.20\nRome,3.30\nBern,4.40\n"
ENDLESS = (
    "CREATE TABLE t AS SELECT symbol, COUNT(*) AS n FROM datagen://trades?rows_per_second=50 GROUP BY symbol;"
)


def rows(process: Process) -> list[dict[str, object]]:
    assert process.end() == 0, process.err
    return [json.loads(line) for line in process.out.splitlines()]


def test_once_processes_what_is_there_in_the_right_order(
    tmp_path: Path, start: Callable[..., Process]
) -> None:
    (tmp_path / "app.sql").write_text(APP)
    (tmp_path / "orders.csv").write_text(ORDERS)
    ran = start("run", "app.sql", "--once", "--format", "json")
    assert rows(ran) == [{"city": "Bern", "n": 1}, {"city": "Pisa", "n": 1}, {"city": "Rome", "n": 2}]
    assert "Traceback" not in ran.err
    assert 'table "totals" created (3 rows' in ran.err  # of the four that were read
    answer = "SELECT country, total FROM countries ORDER BY country"
    assert rows(start("sql", "--format", "json", answer)) == [
        {"country": "CH", "total": 4.40},
        {"country": "IT", "total": 6.60},
    ]

    with (tmp_path / "orders.csv").open("a") as file:
        file.write("Bern,0.60\n")
    again = start("run", "app.sql", "--once", "--format", "json")
    assert {"city": "Bern", "n": 2} in rows(again)
    assert "done before" in again.err
    assert rows(start("sql", "--format", "json", answer))[0] == {"country": "CH", "total": 5.00}

    (tmp_path / "app.sql").write_text(APP.replace("COUNT(*) AS n", "COUNT(*) + 1 AS n"))
    changed = start("run", "app.sql", "--once")
    assert changed.end() == 1
    assert "was created by another statement" in changed.err
    assert "CREATE OR REPLACE" in changed.err


def test_a_missing_source_fails_before_anything_is_left_behind(
    tmp_path: Path, start: Callable[..., Process]
) -> None:
    (tmp_path / "app.sql").write_text("CREATE TABLE t AS SELECT * FROM file://nowhere.csv;")
    ran = start("run", "app.sql", "--once")
    assert ran.end() == 1
    assert "nowhere.csv" in ran.err
    assert "app.sql:1:" in ran.err
    assert "Traceback" not in ran.err
    assert "java" not in ran.err.lower()
    assert rows(start("tables", "--format", "json"))[0]["name"] == "dead_letters"


def test_others_ask_the_process_that_holds_the_directory(
    tmp_path: Path, start: Callable[..., Process], wait_until: WaitUntil
) -> None:
    (tmp_path / "app.sql").write_text(ENDLESS)
    holder = start("run", "app.sql", "--metrics-port", "0")
    wait_until(lambda: "running, 1 job" in holder.err, 120)

    (job,) = rows(start("jobs", "--format", "json"))
    assert (job["name"], job["state"]) == ("t", "running")
    assert rows(start("sql", "--format", "json", "CREATE TABLE p (id INT); INSERT INTO p VALUES (1)")) == []
    assert rows(start("sql", "--format", "json", "SELECT * FROM p")) == [{"id": 1}]
    wrong = start("sql", "SELECT nn FROM t")
    assert wrong.end() == 1
    assert 'did you mean "n"?' in wrong.err

    second = start("run", "app.sql")
    assert second.end() == 2
    assert f"in use by process {holder.pid} (velo run)" in second.err
    assert "velo sql and velo plan work with it" in second.err

    live = start("sql", "--format", "json", "--for", "20s", "SELECT trade_id FROM datagen://trades")
    wait_until(lambda: '{"trade_id":"t1"}' in live.out, 60)
    live.interrupt()
    assert live.end() == 130

    holder.interrupt()
    assert holder.end() == 130
    assert holder.err.count("stopping…") == 1
    assert "Traceback" not in holder.err
    assert rows(start("jobs", "--format", "json"))[0]["state"] == "stopped"


@pytest.mark.parametrize("moment", ["while Spark starts", "while it runs"])
def test_an_interrupt_is_clean_at_any_moment(
    tmp_path: Path, start: Callable[..., Process], wait_until: WaitUntil, moment: str
) -> None:
    (tmp_path / "app.sql").write_text(ENDLESS)
    process = start("run", "app.sql")
    if moment == "while Spark starts":
        wait_until((tmp_path / "data" / "logs" / "spark.out").exists, 60)
    else:
        wait_until(lambda: "running, 1 job" in process.err, 120)
    process.interrupt()
    assert process.end(60) == 130
    assert "Traceback" not in process.err
    assert process.err.splitlines()[-1] == "stopping…"
    wait_until(lambda: not java_on(tmp_path), 30)
    assert start("tables").end() == 0


def java_on(folder: Path) -> list[str]:
    """Java processes that were started for a data directory below the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = entry.read_bytes().decode(errors="replace")
            if str(folder) in command and "SparkSubmit" in command:
                found.append(entry.parent.name)
    return found


def test_termination_stops_cleanly(
    tmp_path: Path, start: Callable[..., Process], wait_until: WaitUntil
) -> None:
    (tmp_path / "app.sql").write_text(ENDLESS)
    process = start("run", "app.sql")
    wait_until(lambda: "running, 1 job" in process.err, 120)
    process.interrupt(signal.SIGTERM)
    assert process.end(60) == 143
    assert "Traceback" not in process.err


def test_it_ends_after_the_time_it_was_given(tmp_path: Path, start: Callable[..., Process]) -> None:
    """It counts from when everything has started, and what was done is told."""
    (tmp_path / "app.sql").write_text(ENDLESS)
    process = start("run", "app.sql", "--for", "2s")
    assert process.end(120) == 0
    assert "running, 1 job" in process.err
    assert re.search(r"ran for 2 s, 1 job\n  \w+: running, \d+ in, \d+ out\n", process.err)


def test_the_demo(start: Callable[..., Process], tmp_path: Path) -> None:
    process = start("demo", "--fast", "--data-dir", str(tmp_path / "demo" / "data"))
    assert process.end(240) == 0, process.err
    assert process.out.count("followed in") == 3
    assert process.out.count("velo sql --data-dir") == 2
    last = rows(
        start(
            "sql", "--data-dir", str(tmp_path / "demo" / "data"), "--format", "json", "SELECT name FROM pnl"
        )
    )
    assert sorted(str(row["name"]) for row in last) == ["Ada", "Ben", "Cleo", "Eve", "Finn"]
