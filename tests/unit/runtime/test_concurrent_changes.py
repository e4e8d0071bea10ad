"""Changes by several threads at once: each sees all that was committed before it, and none is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from velostream.errors import KeyExistsError
from velostream.runtime.catalog.catalog import Catalog
from velostream.runtime.instance import open_instance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from velostream.runtime.instance import Instance

THREADS, TIMES = 4, 15


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Instance]:
    with open_instance(tmp_path / "data") as database:
        yield database


def at_once(database: Instance, *statements: str) -> list[BaseException | None]:
    """Each statement several times, by a thread of its own."""

    def run(statement: str) -> None:
        for _ in range(TIMES):
            database.sql(statement)

    with ThreadPoolExecutor(len(statements)) as pool:
        return [future.exception() for future in [pool.submit(run, each) for each in statements]]


@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
def test_no_update_is_lost(database, key):
    database.sql(f"CREATE TABLE t (k INT {key}, v BIGINT)")
    database.sql("INSERT INTO t VALUES (1, 0)")
    assert at_once(database, *["UPDATE t SET v = v + 1 WHERE k = 1"] * THREADS) == [None] * THREADS
    assert database.sql("SELECT v FROM t").rows() == [(THREADS * TIMES,)]


def test_inserts_deletes_and_updates_of_the_same_rows(database):
    database.sql("CREATE TABLE t (v BIGINT)")
    statements = ("INSERT INTO t VALUES (1)", "UPDATE t SET v = v + 1", "DELETE FROM t WHERE v > 3")
    assert at_once(database, *statements) == [None] * 3


def test_one_of_several_inserts_of_a_key_succeeds(database):
    database.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
    for key in range(TIMES):
        with ThreadPoolExecutor(THREADS) as pool:
            inserts = [f"INSERT INTO t VALUES ({key}, {value})" for value in range(THREADS)]
            errors = [future.exception() for future in [pool.submit(database.sql, each) for each in inserts]]
        assert errors.count(None) == 1
        assert all(error is None or isinstance(error, KeyExistsError) for error in errors)


def test_a_statement_that_a_crash_kept_from_being_remembered_runs_once(tmp_path, monkeypatch):
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with open_instance(tmp_path / "data") as database:
        database.sql("CREATE TABLE t (v BIGINT)")
        first, second = database.check("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)")
        monkeypatch.setattr(Catalog, "mark_done", crash)
        with pytest.raises(KeyboardInterrupt):
            database.executor.run(first, identity="first")
        monkeypatch.undo()
        database.table("t").insert([{"v": 10}])
        database.sql("UPDATE t SET v = v + 1 WHERE v = 10")
    with open_instance(tmp_path / "data") as database:
        for statement, identity in ((second, "second"), (first, "first"), (second, "second")):
            database.executor.run(statement, identity=identity)
        assert sorted(row.v for row in database.table("t").rows()) == [1, 2, 11]
