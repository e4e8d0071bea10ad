"""Sources that are not ready, and runs that did not do what they were asked to."""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest

import velostream
from refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Process
    from tests.conftest import WaitUntil

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]

WAITING = """
CREATE TABLE t AS SELECT * FROM file://late.csv
  WITH ("file.create.empty" = "true", "file.debounce" = "100ms");
CREATE TABLE sums AS SELECT k, SUM(v) AS total FROM t GROUP BY k;
CREATE TABLE other AS SELECT COUNT(*) AS n FROM file://there.csv;
"""
NOT_BUILT = """
CREATE TABLE users AS SELECT * FROM delta:///shop/users;
CREATE TABLE fine AS SELECT COUNT(*) AS n FROM file://there.csv;
CREATE TABLE names AS SELECT u.name FROM users u;
CREATE TABLE gone AS SELECT * FROM file://gone.csv;
"""


def rows(process: Process) -> list[dict[str, object]]:
    assert process.end() == 0, process.err
    return [json.loads(line) for line in process.out.splitlines()]


def states(start: Callable[..., Process]) -> dict[str, str]:
    return {str(job["name"]): str(job["state"]) for job in rows(start("jobs", "--format", "json"))}


def test_a_job_waits_for_its_first_row_also_after_a_restart(
    tmp_path: Path, start: Callable[..., Process], wait_until: WaitUntil
) -> None:
    (tmp_path / "there.csv").write_text("k,v\na,1\n")
    (tmp_path / "app.sql").write_text(WAITING)
    first = start("run", "app.sql")
    wait_until(lambda: "running, 3 jobs" in first.err, 120)
    assert 'table "t" created, and waits: "' in first.err
    assert 'late.csv" holds no row yet' in first.err
    assert states(start) == {"t": "waiting", "sums": "waiting", "other": "running"}
    unread = start("sql", "SELECT * FROM sums")
    assert unread.end() == 1
    assert 'table "sums" has no columns yet: it waits for its first record' in unread.err
    assert "waits for its first record" in start_and_read(start, "tables")
    first.interrupt()
    assert first.end(60) == 130
    assert "Traceback" not in first.err

    again = start("run", "app.sql")
    wait_until(lambda: "running, 3 jobs" in again.err, 120)
    assert '"t" waits: ' in again.err
    (tmp_path / "late.csv").write_text("k,v\na,1\nb,2\na,3\n")
    wait_until(lambda: set(states(start).values()) == {"running"}, 60)
    asked = ("sql", "--format", "json", "SELECT k, total FROM sums ORDER BY k")
    wait_until(lambda: rows(start(*asked)) == [{"k": "a", "total": 4}, {"k": "b", "total": 2}], 60)
    again.interrupt()
    assert again.end(60) == 130


def start_and_read(start: Callable[..., Process], *arguments: str) -> str:
    process = start(*arguments)
    assert process.end() == 0, process.err
    return process.out


def test_a_waiting_job_can_be_stopped_and_dropped(
    tmp_path: Path, start: Callable[..., Process], wait_until: WaitUntil
) -> None:
    (tmp_path / "there.csv").write_text("k,v\na,1\n")
    (tmp_path / "app.sql").write_text(WAITING)
    process = start("run", "app.sql")
    wait_until(lambda: "running, 3 jobs" in process.err, 120)
    assert start("sql", "STOP JOB sums").end() == 0
    assert states(start)["sums"] == "stopped"
    assert start("sql", "RESUME JOB sums").end() == 0
    wait_until(lambda: states(start)["sums"] == "waiting", 30)
    assert start("sql", "DROP TABLE sums; DROP TABLE t").end() == 0
    assert states(start) == {"other": "running"}
    process.interrupt()
    assert process.end(60) == 130


def test_what_waited_when_the_time_was_over_is_no_success(
    tmp_path: Path, start: Callable[..., Process]
) -> None:
    (tmp_path / "there.csv").write_text("k,v\na,1\n")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "app.sql").write_text(f"{WAITING} SELECT k FROM file://empty.csv;")
    process = start("run", "app.sql", "--for", "2s")
    assert process.end(120) == 4
    assert (
        'error: app.sql:6:2: SELECT k FROM file://empty.csv did not start within the time: "' in process.err
    )
    assert "ran for 2 s, 3 jobs" in process.err
    assert 'error: job "t" did not start within the time: "' in process.err
    assert 'error: job "sums" did not start within the time: table "t" has no columns yet' in process.err
    assert 'job "other"' not in process.err


def test_a_followed_select_waits_for_the_first_row(
    tmp_path: Path, start: Callable[..., Process], wait_until: WaitUntil
) -> None:
    (tmp_path / "empty.csv").touch()
    (tmp_path / "app.sql").write_text("CREATE TABLE t AS SELECT * FROM file://empty.csv;")
    holder = start("run", "app.sql")
    wait_until(lambda: "running, 1 job" in holder.err, 120)
    late = ("sql", "SELECT a, b FROM file://empty.csv", "--format", "csv")
    never = start(*late, "--for", "1s")
    assert never.end() == 4
    assert 'error: the SELECT did not start within the time: "' in never.err
    followed = start(*late)
    wait_until(lambda: "holds no row yet" in followed.err, 60)
    with velostream.connect(tmp_path / "data") as db:
        with refusal("timeout", "empty.csv"):
            db.wait_until(lambda: db.table("t"), timeout=0.1)
        (tmp_path / "empty.csv").write_text("a,b\n1,2\n")
        with db.stream("SELECT a FROM file://empty.csv") as live:
            assert next(iter(live))[0].to_pydict() == {"a": [1]}
        assert db.wait_until(lambda: db.table("t")).wait_for("a = 1").schema.names == ["a", "b"]
        assert repr(db.job("t")) == "<Job t: running, 1 rows in, 1 out>"
    wait_until(lambda: followed.out == "a,b\n1,2\n", 60)


def test_the_time_also_counts_while_a_statement_waits_for_its_source(
    tmp_path: Path, start: Callable[..., Process]
) -> None:
    (tmp_path / "app.sql").write_text(
        'CREATE TABLE t AS SELECT * FROM file://never.csv WITH ("file.wait.timeout" = "1h");\n'
        "CREATE TABLE after AS SELECT * FROM datagen://trades;\n"
    )
    process = start("run", "app.sql", "--for", "2s")
    assert process.end(120) == 4
    assert "error: app.sql:1:1: t did not start within the time: file" in process.err
    assert "error: app.sql:2:1: after did not start within the time" in process.err
    assert "Traceback" not in process.err


def test_the_time_counts_from_when_everything_runs_also_what_was_left_out(
    tmp_path: Path, start: Callable[..., Process]
) -> None:
    (tmp_path / "before.sql").write_text(
        "CREATE TABLE c AS SELECT * FROM datagen://trades?rows_per_second=50;"
    )
    assert start("run", "before.sql", "--for", "1s").end(120) == 0
    (tmp_path / "after.sql").write_text(
        "CREATE TABLE by_hand (id INT PRIMARY KEY); SELECT trade_id FROM datagen://trades?rows_per_second=50;"
    )
    process = start("run", "after.sql", "--for", "1s", "--format", "csv")
    assert process.end(120) == 0, process.err
    assert (
        'warning: table "c" is not in this file, but stays and runs on; DROP TABLE c ends it' in process.err
    )
    assert re.search(r"ran for 1 s, 1 job\n  c: running, [1-9][\d,]* in, [1-9][\d,]* out\n", process.err)
    assert process.out.startswith("trade_id\nt1\n")
    assert states(start) == {"c": "stopped"}
    assert start("sql", "DROP TABLE c").end() == 0
    assert states(start) == {}


def test_a_column_that_the_source_does_not_have_is_unknown(
    tmp_path: Path, start: Callable[..., Process]
) -> None:
    (tmp_path / "orders.csv").write_text("user_id,amount\n1,2.50\n")
    text = (
        "CREATE TABLE orders AS SELECT * FROM file://orders.csv;\n"
        "CREATE TABLE totals AS SELECT usr, COUNT(*) AS n FROM orders GROUP BY user_id;\n"
    )
    (tmp_path / "app.sql").write_text(text)
    for command in (("run", "app.sql", "--once"), ("check", "app.sql", "--connect"), ("sql", text)):
        process = start(*command)
        assert process.end(120) == 1
        assert '2:31: unknown column "usr"' in process.err
        assert 'hint: did you mean "user_id"?' in process.err
        assert "grouped" not in process.err
    # One that it has, and a source that nobody can ask.
    (tmp_path / "app.sql").write_text(text.replace("usr", "amount"))
    known = start("run", "app.sql", "--once")
    assert known.end(120) == 1
    assert 'column "amount" must be grouped or inside an aggregate' in known.err
    (tmp_path / "orders.csv").unlink()
    unasked = start("run", "app.sql", "--once")
    assert unasked.end(120) == 1
    assert 'column "amount" is neither grouped nor inside an aggregate' in unasked.err


def test_one_that_cannot_start_does_not_keep_the_others_from_starting(
    tmp_path: Path, start: Callable[..., Process]
) -> None:
    (tmp_path / "there.csv").write_text("k,v\na,1\n")
    (tmp_path / "app.sql").write_text(NOT_BUILT)
    refused = start("run", "app.sql", "--for", "2s")
    assert refused.end(120) == 1
    assert "created" not in refused.err

    process = start("run", "app.sql", "--for", "2s", "--keep-going")
    assert process.end(120) == 1
    assert 'table "fine" created' in process.err
    assert "running, 1 job;" in process.err
    assert "warning: users was not started: delta:// is a sink: it is written, and not read" in process.err
    assert 'warning: names was not started: skipped: it needs "users", which did not start' in process.err
    assert "warning: gone was not started: file" in process.err
    assert "3 of 4 statements did not start" in process.err
    assert process.err.count("error: app.sql:") == 3
    assert rows(start("sql", "--format", "json", "SELECT n FROM fine")) == [{"n": 1}]


def test_of_a_failure_in_java_the_cause_is_told_everywhere(
    tmp_path: Path, start: Callable[..., Process], wait_until: WaitUntil
) -> None:
    (tmp_path / "there.csv").write_text("k,v\na,1\n")
    (tmp_path / "app.sql").write_text("CREATE TABLE t AS SELECT k FROM file://there.csv;")
    assert start("run", "app.sql", "--once").end(120) == 0
    # Spark cannot write where a file is; Velostream itself does not need what was there.
    (checkpoint,) = (tmp_path / "data" / "jobs").glob("*/checkpoint")
    shutil.rmtree(checkpoint)
    checkpoint.touch()
    process = start("run", "app.sql")
    cause = f"Spark failed: destination exists and is not a directory: {checkpoint}"
    wait_until(lambda: f'"t": {cause}; trying again in ' in process.err, 120)
    wait_until(lambda: cause in str(rows(start("jobs", "--format", "json"))[0]["reason"]), 60)
    assert f"t: job state=degraded reason={cause}" in start_and_read(start, "logs", "--job", "t")
    checkpoint.unlink()
    wait_until(lambda: states(start) == {"t": "running"}, 60)
    process.interrupt()
    assert process.end(60) == 130
    for told in (process.err, start_and_read(start, "logs")):
        assert "Traceback" not in told
        assert not re.search(r"\bo\d+\.start\b|java\.|py4j", told)


def test_without_the_client_of_kafka_it_is_told_what_to_install(
    tmp_path: Path, start: Callable[..., Process]
) -> None:
    blocked = tmp_path / "blocked" / "confluent_kafka"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ModuleNotFoundError('No module named confluent_kafka')")
    path = os.pathsep.join([str(blocked.parent), os.environ.get("PYTHONPATH", "")])
    (tmp_path / "app.sql").write_text("CREATE TABLE t AS SELECT * FROM kafka://orders;")
    for command, code in ((("run", "app.sql", "--once"), 2), (("check", "app.sql", "--connect"), 1)):
        process = start(*command, PYTHONPATH=path)
        assert process.end(120) == code
        assert "kafka:// needs the package confluent-kafka" in process.err
        assert "hint: pip install 'velostream[kafka]'" in process.err


def test_dead_letters_are_shown_as_text(tmp_path: Path, start: Callable[..., Process]) -> None:
    (tmp_path / "in.csv").write_bytes(b"k,v\na,1\nb,caf\xc3\xa9\n\xff,3\n")
    (tmp_path / "app.sql").write_text(
        "CREATE SOURCE s (k STRING, v BIGINT) FROM file://in.csv; CREATE TABLE t AS SELECT * FROM s;"
    )
    assert start("run", "app.sql", "--once").end() == 0
    shown = start_and_read(start, "sql", "SELECT raw FROM dead_letters ORDER BY raw")
    assert shown.splitlines()[2:] == ["b,café", "X'FF2C33'"]


def test_a_name_in_double_quotes_is_warned_of_when_the_columns_are_known(
    tmp_path: Path, start: Callable[..., Process]
) -> None:
    (tmp_path / "there.csv").write_text("k,v\na,1\n")
    (tmp_path / "app.sql").write_text("CREATE TABLE t AS SELECT v FROM file://there.csv WHERE \"k\" = 'a';")
    for command in (("run", "--once"), ("check", "--connect")):
        process = start(*command, "app.sql")
        assert process.end(120) == 0
        assert "app.sql:1:" in process.err
        assert '"k" in double quotes is a text, not the column k; write `k`, or without quotes' in process.err
