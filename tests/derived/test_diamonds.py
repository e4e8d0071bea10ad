"""Two paths from one table into one join: no version mixes states of that table."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_join_of_siblings_shows_no_state_that_never_was(opened, tmp_path):
    database = opened(tmp_path / "data")
    database.sql("CREATE TABLE src (id BIGINT PRIMARY KEY, n BIGINT)")
    database.sql("INSERT INTO src VALUES (1, 1)")
    database.sql("CREATE TABLE positive AS SELECT id, n FROM src")
    database.sql("CREATE TABLE negative AS SELECT id, -n AS n FROM src")
    database.sql("CREATE TABLE deep AS SELECT id, MAX(n) AS n FROM negative GROUP BY id")
    database.sql(
        "CREATE TABLE zero AS SELECT p.id, p.n + d.n AS z FROM positive p FULL JOIN deep d ON p.id = d.id"
    )
    database.sql(
        "CREATE TABLE none AS SELECT s.id FROM src s LEFT ANTI JOIN positive p ON s.id = p.id AND s.n = p.n"
    )
    assert database.wait_idle(120), database.jobs()
    for number in range(2, 8):
        database.sql("UPDATE src SET n = n + 1")
        database.sql("INSERT INTO src VALUES (:id, 5)", {"id": number})
    assert database.wait_idle(120), database.jobs()
    database.sql("UPDATE src SET n = 100")
    assert database.wait_idle(120), database.jobs()
    assert len(database.table("zero")) == 7
    zeros, strays = (database.table(name) for name in ("zero", "none"))
    assert set(zeros.changes_between(0, zeros.version).column("z").to_pylist()) == {0}
    assert strays.version == 0


def test_what_a_filter_drops_still_moves_its_readers_on(opened, tmp_path):
    database = opened(tmp_path / "data")
    database.sql("CREATE TABLE src (id BIGINT PRIMARY KEY, n BIGINT)")
    database.sql("CREATE TABLE big AS SELECT id, n FROM src WHERE n > 100")
    database.sql("CREATE TABLE bigger AS SELECT id, n FROM big WHERE n > 200")
    database.sql("CREATE TABLE j AS SELECT s.id, b.n FROM src s LEFT JOIN bigger b ON s.id = b.id")
    database.sql("INSERT INTO src VALUES (1, 1), (2, 300)")
    assert database.wait_idle(120), database.jobs()
    database.sql("INSERT INTO src VALUES (3, 3)")
    assert database.wait_idle(120), database.jobs()
    assert sorted(tuple(row) for row in database.table("j").rows()) == [(1, None), (2, 300), (3, None)]
    database.close()
    again = opened(tmp_path / "data")
    again.sql("UPDATE src SET n = 500 WHERE id = 3")
    assert again.wait_idle(120), again.jobs()
    assert sorted(tuple(row) for row in again.table("j").rows()) == [(1, None), (2, 300), (3, 500)]
