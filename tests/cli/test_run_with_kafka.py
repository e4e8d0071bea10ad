"""`velo run` beside a real broker: sources that are not ready, mistakes, and changes while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from velostream.devtools.broker.process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Velo
    from tests.cli.conftest import Process
    from tests.conftest import WaitUntil

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]

APP = """
CREATE TABLE orders AS SELECT * FROM kafka://orders
  WITH ("topic.create.if.missing" = "true", "topic.partitions" = "1");
CREATE TABLE words AS SELECT key, value, _offset AS place FROM kafka://words WITH ("format" = "raw");
CREATE TABLE bytes AS SELECT value, timestamp
  FROM kafka://words (value BINARY, timestamp BIGINT) WITH ("format" = "raw");
CREATE TABLE away AS SELECT * FROM kafka://127.0.0.1:{closed}/orders;
CREATE TABLE waited AS SELECT * FROM kafka://127.0.0.1:{closed}/orders WITH ("topic.wait.timeout" = "2s");
CREATE TABLE there AS SELECT COUNT(*) AS n FROM file://there.csv;
"""


def test_what_is_not_ready_waits_or_is_told_and_the_rest_runs(
    velo: Velo, start: Callable[..., Process], wait_until: WaitUntil
) -> None:
    (velo.folder / "there.csv").write_text("k\na\n")
    (velo.folder / "app.sql").write_text(APP.format(closed=free_port()))
    velo("topic", "create", "words", "--partitions", "1")
    velo("topic", "produce", "words", "--format", "text", given="one\ntwo\n")
    run = start("run", "app.sql", "--keep-going", **velo.environment)
    wait_until(lambda: "running, " in run.err, 120)
    assert 'table "orders" created, and waits: kafka topic "orders"' in run.err
    assert run.err.count("was not started: kafka at ") == 2, run.err
    assert "2 of 6 statements did not start" in run.err

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
    for arguments in (("run", "app.sql"), ("sql", "SELECT 1")):
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
    velo("sql", "TRUNCATE hand; ALTER TABLE hand RENAME TO kept; ALTER TABLE sums SET ('on.error' = 'skip')")
    assert velo.json("sql", "SELECT COUNT(*) AS n FROM kept") == [{"n": 0}]
    replaced = velo(
        "sql", "CREATE OR REPLACE TABLE sums AS SELECT k, SUM(v) * 10 AS total FROM file://in.csv GROUP BY k"
    ).stderr
    assert "big" in replaced
    assert velo.json("sql", "SELECT k FROM big ORDER BY k") == [{"k": "a"}, {"k": "b"}]
    run.interrupt()
    assert run.end(60) == 130
