"""What is closed, dropped or replaced says so, whatever it is asked, and writes nothing any more."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from refusals import refusal
from velostream.errors import ClosedError, VelostreamError
from velostream.runtime.instance import Instance, open_instance
from velostream.runtime.jobs.job import Job
from velostream.runtime.statements.live_select import LiveSelect
from velostream.serving.contract.table import Table
from velostream.serving.table.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STAYS: dict[type, set[str]] = {
    Instance: {"close"},
    # Its name says what was lost, and how its source was is told until the end.
    Table: {"close", "set_health"},
    Subscription: {"close"},
    # Figures that were counted in this process; waiting for a job that has ended is over at once.
    Job: {"ending", "errors_by_code", "idle", "info", "state", "stats", "counted", "stop", "tell", "wait"},
    LiveSelect: {"interrupt", "table"},
}
"""Members that may be used after the end: they end things, or tell what is in memory."""
_SPECIAL = {"__enter__", "__len__", "__contains__", "__next__", "__anext__"}


def public(kind: type) -> list[str]:
    """Every public member of a class that does something."""
    found = []
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        does = callable(member) or isinstance(member, property | staticmethod)
        if does and (name in _SPECIAL or not name.startswith("_")) and name not in STAYS[kind]:
            found.append(name)
    return found


def use(thing: object, name: str) -> object:
    """Call a member with something for each parameter that it needs; what it gives is used up."""
    member = getattr(thing, name)
    if not callable(member):
        return member
    needed = [
        parameter
        for parameter in inspect.signature(member).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    given = member(*("x" for _ in needed))
    if inspect.isawaitable(given):
        return asyncio.run(_awaited(given))
    if inspect.isasyncgen(given):
        return asyncio.run(_awaited(anext(given)))
    if isinstance(given, Iterator):
        return list(given)
    if hasattr(given, "__enter__") and not hasattr(given, "lifetime"):
        with given:  # type: ignore[attr-defined]
            return None
    return given


async def _awaited(given: Any) -> object:
    return await given


def refused(thing: object, kind: type, message: str) -> None:
    """Every public member says that it is closed."""
    wrong = {}
    for name in public(kind):
        try:
            wrong[name] = repr(use(thing, name))
        except ClosedError as exc:
            if exc.code != "closed" or message not in exc.message or exc.message.endswith("."):
                wrong[name] = exc.message
        except (StopIteration, StopAsyncIteration) as exc:
            if kind is not Subscription:
                wrong[name] = repr(exc)
        except Exception as exc:
            wrong[name] = repr(exc)
    assert wrong == {}


def files(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def by_hand(folder: Path) -> Iterator[Instance]:
    with open_instance(folder) as database:
        database.create_table("t", [{"id": 1, "v": "a"}], key="id")
        yield database


def test_every_public_member_of_a_closed_database_says_so_and_writes_nothing(
    by_hand: Instance, folder: Path
) -> None:
    table = by_hand.table("t")
    waiting, ended = table.changes(), table.changes()
    ended.close()
    made_before = by_hand.udf(returns="int")
    result = by_hand.sql("SELECT * FROM t")
    rows = table.stream()
    next(rows)
    by_hand.close()
    before = files(folder)
    refused(by_hand, Instance, "the database is closed")
    refused(table, Table, 'table "t" is closed')
    refused(waiting, Subscription, 'table "t" is closed')
    refused(ended, Subscription, "the subscription is closed")
    for statement in (
        "INSERT INTO t VALUES (2, 'b')",
        "CREATE TABLE u (id INT)",
        "DROP TABLE t",
        "SELECT 1",
        "SHOW JOBS",
        "no sql",
    ):
        with refusal("closed", why="database"):
            by_hand.sql(statement)
    with pytest.raises(ClosedError):
        made_before(lambda x: x)
    with pytest.raises(ClosedError), by_hand:
        pass
    for write in (
        lambda: by_hand.store.drop("t"),
        lambda: by_hand.catalog.remove("t"),
        lambda: by_hand.executor.run(None),  # type: ignore[arg-type]
    ):
        with pytest.raises(ClosedError):
            write()
    by_hand.close()
    table.close()
    waiting.close()
    assert files(folder) == before
    # What was handed out stays.
    assert result.rows() == [(1, "a")]
    assert list(rows) == []


def test_a_closed_database_does_not_write_into_the_directory_of_another(
    by_hand: Instance, folder: Path
) -> None:
    table = by_hand.table("t")
    by_hand.close()
    with open_instance(folder) as holder:
        holder.sql("INSERT INTO t VALUES (2, 'b')")
        for write in (
            lambda: by_hand.sql("INSERT INTO t VALUES (3, 'c')"),
            lambda: table.insert([(3, "c")]),
            lambda: table.checkpoint(),
            lambda: table.register_reader("r", 0),
            lambda: by_hand.create_table("u", [{"id": 1}]),
        ):
            with pytest.raises(ClosedError):
                write()
        holder.sql("INSERT INTO t VALUES (4, 'd')")
    with open_instance(folder) as again:
        assert [row.id for row in again.sql("SELECT id FROM t ORDER BY id")] == [1, 2, 4]
        assert all(report.good for report in again.verify())
        assert again.sql("SHOW TABLES").arrow()["name"].to_pylist() == ["dead_letters", "t"]


@pytest.mark.parametrize("end", ["dropped", "replaced"])
def test_a_handle_on_a_table_that_is_gone_says_why(by_hand: Instance, folder: Path, end: str) -> None:
    table, following = by_hand.table("t"), by_hand.table("t").changes()
    version = table.version_object
    if end == "dropped":
        by_hand.sql("DROP TABLE t")
        by_hand.sql("CREATE TABLE t (id INT, v STRING)")
    else:
        by_hand.sql("CREATE OR REPLACE TABLE t (id INT, v STRING)")
    before = files(folder / "tables")
    refused(table, Table, f'table "t" was {end}')
    refused(following, Subscription, f'table "t" was {end}')
    assert files(folder / "tables") == before
    assert version.snapshot().num_rows == 1
    assert by_hand.table("t").snapshot().num_rows == 0


def test_what_was_written_while_another_thread_closes_is_kept_or_refused(
    folder: Path, rounds: Callable[[int, int], int]
) -> None:
    for attempt in range(rounds(2, 40)):
        database = open_instance(folder / str(attempt))
        database.sql("CREATE TABLE t (id INT, PRIMARY KEY (id))")
        table = database.table("t")
        begun = threading.Barrier(5)

        def write(number: int, database: Instance = database, table: Table = table, begun=begun) -> list[int]:
            done: list[int] = []
            begun.wait()
            for each in range(number, 10_000_000, 4):
                try:
                    if number % 2:
                        table.insert([(each,)])
                    else:
                        database.sql("INSERT INTO t VALUES (?)", [each])
                except ClosedError:
                    return done
                done.append(each)
            return done

        with ThreadPoolExecutor(4) as others:
            writers = [others.submit(write, number) for number in range(4)]
            begun.wait()
            database.close()
            done = sorted(each for writer in writers for each in writer.result(30))
        with open_instance(folder / str(attempt)) as again:
            assert [row.id for row in again.sql("SELECT id FROM t ORDER BY id")] == done


def test_readers_are_not_disturbed_by_a_table_that_is_replaced(by_hand: Instance) -> None:
    stop = threading.Event()

    def read() -> int:
        count = 0
        while not stop.is_set():
            assert len(by_hand.sql("SELECT * FROM t").rows()) <= 1
            assert "t" in by_hand.sql("SHOW TABLES").arrow()["name"].to_pylist()
            count += 1
        return count

    with ThreadPoolExecutor(2) as others:
        readers = [others.submit(read) for _ in range(2)]
        try:
            for _ in range(20):
                by_hand.sql("CREATE OR REPLACE TABLE t (id INT, v STRING)")
        finally:
            stop.set()
        assert all(reader.result(30) for reader in readers)


def test_jobs_and_selects_of_a_closed_database(opened, tmp_path, wait_until) -> None:
    data = tmp_path / "numbers.csv"
    data.write_text("id\n1\n2\n")
    database = opened(tmp_path / "data")
    database.sql(f"CREATE TABLE t AS SELECT id FROM file://{data}")
    database.sql("CREATE TABLE d (id INT) WITH ('table.storage' = 'delta')")
    database.sql("INSERT INTO d VALUES (1)")
    job, delta = database.job("t"), database.table("d")
    never_entered = database.stream(f"SELECT id FROM file://{data}")
    left = database.stream(f"SELECT id FROM file://{data}", once=True)
    with left:
        assert left.everything().num_rows == 2
    refused(left, LiveSelect, "the SELECT has ended")
    live = database.stream(f"SELECT id FROM file://{data}")
    seen: list[object] = []
    with live, ThreadPoolExecutor(2) as others:

        def follow() -> None:
            seen.extend(live.batches())

        following = others.submit(follow)
        wait_until(lambda: seen)
        long = others.submit(database.sql, "SELECT count(*) FROM range(1000000000000) WHERE xxhash64(id) = 7")
        wait_until(lambda: database.lifetime.in_use)
        database.close()
        with refusal("closed", why="database"):
            following.result(30)
        before = files(tmp_path / "data")
        refused(live, LiveSelect, "the database is closed")
        # Its Spark is shared with other tests: nothing else ends it.
        assert not long.done() or isinstance(long.exception(), VelostreamError)
    refused(never_entered, LiveSelect, "the database is closed")
    refused(job, Job, "the database is closed")
    refused(delta, Table, "is closed")
    assert {name: at for name, at in files(tmp_path / "data").items() if "tmp/" not in name} == {
        name: at for name, at in before.items() if "tmp/" not in name
    }
