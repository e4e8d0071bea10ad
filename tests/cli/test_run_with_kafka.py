"""`velo run` beside a real broker: sources that are not ready, mistakes, and changes while it runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from commands import Velo

from velostream.devtools.broker.process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Process
    from tests.conftest import WaitUntil

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]

APP = """
CREATE TABLE orders AS SELECT * FROM kafka://orders
  WITH ("topic.create.if.missing" = "true", "topic.partitions" = "1");
CREATE TABLE words AS SELECT key, value, _offset AS place FROM kafka://words WITH ("format" = "raw");
CREATE SOURCE declared (value BINARY, timestamp BIGINT) FROM kafka://words WITH ("format" = "raw");
CREATE TABLE bytes AS SELECT value, timestamp FROM declared;
CREATE TABLE away AS SELECT * FROM kafka://127.0.0.1:{closed}/orders;
CREATE TABLE waited AS SELECT * FROM kafka://127.0.0.1:{closed}/orders
  WITH ("topic.wait.timeout" = "6s", "topic.retry.interval" = "200ms");
CREATE TABLE there AS SELECT COUNT(*) AS n FROM file://there.csv;
"""


def test_what_is_not_ready_waits_or_is_told_and_the_rest_runs(
    velo: Velo, start: Callable[..., Process], wait_until: WaitUntil
) -> None:
    (velo.folder / "there.csv").write_text("k\na\n")
    (velo.folder / "app.sql").write_text(APP.format(closed=free_port()))
    velo("topic", "create", "words", "--partitions", "1")
    velo("topic", "produce", "words", "--format", "text", given="one\ntwo\n")
    run = start("run", "app.sql", "--keep-going", "--metrics-port", "0", **velo.environment)
    wait_until(lambda: "running, " in run.err, 120)
    assert 'table "orders" created, and waits: kafka topic "orders"' in run.err
    assert re.search(
        r'attempt 1: kafka at "127.0.0.1:[^;]* cannot be reached: [^;]*; trying again for', run.err
    )
    attempts = velo("logs", "--job", "waited").stdout.splitlines()
    assert all("waited: attempt number=" in line and "cannot be reached" in line for line in attempts)
    tried = [re.search(r"number=(\d+)", line) for line in attempts]
    assert len(tried) >= 2
    assert [int(found[1]) for found in tried if found] == [*range(1, len(attempts) + 1)]
    assert "then=no longer waited for" in attempts[-1]
    (address,) = re.findall(r"metrics: (http\S+)", run.err)
    with urlopen(address) as answer:
        figures = answer.read().decode()
    counted = 'velostream_connection_attempts_total{outcome="source.network",statement="waited"} '
    assert f"{counted}{float(len(attempts))}" in figures
    # One that waits for a record says so once, and not twice a second.
    logged = velo("logs", "--job", "orders").stdout
    assert logged.count("then=looking again every 0.5s") == 1, logged
    assert run.err.count("was not started: kafka at ") == 2, run.err

    def rows(query: str) -> list[dict[str, object]]:
        return velo.json("sql", query)

    def state(name: str) -> object:
        return {job["name"]: job["state"] for job in velo.json("jobs")}[name]

    assert state("orders") == "waiting"
    wait_until(
        lambda: (
            rows("SELECT * FROM words ORDER BY place")
            == [{"key": None, "value": "one", "place": 0}, {"key": None, "value": "two", "place": 1}]
        )
    )
    (sample,) = rows("SELECT typeof(value) AS v, timestamp > 1700000000000 AS ms FROM bytes LIMIT 1")
    assert sample == {"v": "binary", "ms": True}
    velo("topic", "produce", "orders", given='{"id":1,"amount":2.50}\n')
    wait_until(
        lambda: (
            velo.json("jobs")
            and {str(j["name"]): j["state"] for j in velo.json("jobs")}["orders"] == "running"
        )
    )
    wait_until(lambda: rows("SELECT id, amount FROM orders") == [{"id": 1, "amount": 2.50}])
    run.interrupt()
    assert run.end(60) in (130, 3)


def test_what_is_written_wrong_is_named(velo: Velo) -> None:
    for text, told in {
        "SELEKT 1": 'did you mean "SELECT"?',
        "SELECT a, COUNT(*) AS n FROM t GRUOP BY a": 'did you mean "GROUP"?',
    }.items():
        (velo.folder / "app.sql").write_text(f"CREATE TABLE t (a INT);\n{text};\n")
        assert told in velo("check", "app.sql", code=1).stderr
    velo.environment["VELOSTREAM_RETRY_STRATEGY"] = "often"
    (velo.folder / "app.sql").write_text("CREATE TABLE t AS SELECT * FROM kafka://words;")
    for arguments in (("run", "app.sql"), ("sql", "SELECT * FROM kafka://words LIMIT 1"), ("topic", "list")):
        wrong = velo(*arguments, code=2).stderr
        assert "VELOSTREAM_RETRY_STRATEGY" in wrong
        assert "exponential" in wrong


def test_a_client_changes_what_another_process_runs(
    velo: Velo, start: Callable[..., Process], wait_until: WaitUntil
) -> None:
    (velo.folder / "in.csv").write_text("k,v\na,1\nb,2\n")
    (velo.folder / "app.sql").write_text(
        "CREATE TABLE hand (id INT PRIMARY KEY);\n"
        "CREATE MATERIALIZED VIEW sums AS SELECT k, SUM(v) AS total FROM file://in.csv GROUP BY k;\n"
        "CREATE TABLE big AS SELECT k FROM sums WHERE total > 1;\n"
    )
    run = start("run", "app.sql", **velo.environment)
    wait_until(lambda: "running, " in run.err, 120)
    velo("sql", "ALTER TABLE hand ADD COLUMN note STRING DEFAULT 'none'; INSERT INTO hand (id) VALUES (7)")
    assert velo.json("sql", "SELECT * FROM hand") == [{"id": 7, "note": "none"}]
    velo("sql", "TRUNCATE hand; ALTER TABLE hand RENAME TO kept")
    assert velo.json("sql", "SELECT COUNT(*) AS n FROM kept") == [{"n": 0}]

    def comes(line: str, key: str) -> None:
        with (velo.folder / "in.csv").open("a") as file:
            file.write(f"c,{line}\n{key},5\n")
        wait_until(lambda: velo.json("sql", f"SELECT k FROM sums WHERE k = '{key}'") == [{"k": key}], 60)

    letters = "SELECT COUNT(*) AS n FROM dead_letters"
    comes("no number", "d")
    assert velo.json("sql", letters) == [{"n": 1}]
    assert "on.error" in velo("sql", "ALTER TABLE sums SET ('on.error' = 'skip')").stderr
    comes("no number, either", "e")
    assert velo.json("sql", letters) == [{"n": 1}]

    replacing = "CREATE OR REPLACE TABLE sums AS SELECT k, SUM(v) * 10 AS total FROM file://in.csv GROUP BY k"
    refused = velo("sql", replacing.replace("AS total", "AS sum"), code=1).stderr
    assert '"big", which is built on "sums", would not work any more: unknown column "total"' in refused
    assert velo.json("sql", "SELECT total FROM sums WHERE k = 'b'") == [{"total": 2}]
    replaced = velo("sql", replacing).stderr
    plan = [line for line in replaced.splitlines() if line.startswith(("replaced: ", "rebuilt: "))]
    assert plan[0].startswith('replaced: table "sums" from file://in.csv; now 4 rows')
    assert plan[1].startswith('rebuilt: table "big" from sums; now 3 rows')
    assert velo.json("sql", "SELECT k FROM big ORDER BY k") == [{"k": key} for key in "abde"]

    # A relative path is that of the process which reads it, and that is said.
    other = Velo(velo.folder / "elsewhere", "")
    other.folder.mkdir()
    other.environment = velo.environment
    asked = other("sql", "SELECT k FROM file://in.csv LIMIT 1", "--format", "csv")
    assert asked.stdout == "k\na\n"
    assert f"relative paths start at the folder of process {run.pid}: {velo.folder}" in asked.stderr
    assert "relative" not in replaced
    run.interrupt()
    assert run.end(60) == 130
