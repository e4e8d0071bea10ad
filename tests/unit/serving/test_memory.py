from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from trade_rows import TRADES, commit, trades

from refusals import refusal
from velostream.errors import MemoryBudgetError
from velostream.model.tables import TableSpec
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    from pathlib import Path


def many(first: int, count: int) -> pa.Table:
    return trades(*((f"s{number:06d}", "1.00", number) for number in range(first, first + count)))


def test_the_statistics_tell_what_the_memory_is_for(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    table.commit_keyed(many(0, 5000), None, commit(1))
    before = table.stats()
    assert before.memory.columns >= 5000 * (7 + 4 + 16 + 8)
    assert before.memory.indexes == 0
    assert before.memory.rows == 0
    assert table.version_object.fetch_where(["volume"], pa.table({"volume": [7]})).num_rows == 1
    table.get_many([f"s{number:06d}" for number in range(5000)])
    after = table.stats()
    assert after.memory.indexes >= 5000 * 12
    assert after.memory.keys >= 5000 * 100
    assert after.memory.rows >= 5000 * 200
    assert after.bytes == after.memory.total
    assert after.bytes_per_row == after.bytes / 5000


def test_all_tables_together_have_a_budget(tmp_path: Path) -> None:
    with TableStore(tmp_path) as store:
        tables = [store.create(TableSpec(name, TRADES, ("symbol",))) for name in ("one", "two")]
        for number, table in enumerate(tables):
            table.commit_keyed(many(0, 2000), None, commit(number))
        needed = sum(table.stats().memory.needed for table in tables)
        store.budget.total = needed + 1000
        with refusal("table.memory", why="all tables") as caught:
            tables[1].commit_keyed(many(2000, 2000), None, commit(9))
        assert 'table "two"' in (caught.value.detail or "")
        assert tables[1].get("s000007") is not None
        assert len(tables[1]) == 2000
        store.drop("one")
        tables[1].commit_keyed(many(2000, 1000), None, commit(9))
        assert len(tables[1]) == 3000


def test_tables_that_come_back_from_disk_count(tmp_path: Path) -> None:
    with TableStore(tmp_path) as store:
        for name in ("one", "two"):
            store.create(TableSpec(name, TRADES, ("symbol",))).commit_keyed(many(0, 2000), None, commit(1))
    with TableStore(tmp_path) as store:
        one, two = store.open("one"), store.open("two")
        store.budget.total = one.stats().memory.needed + 1000
        with pytest.raises(MemoryBudgetError):
            two.commit_keyed(many(2000, 10), None, commit(2))


def test_rows_kept_ready_go_before_a_commit_is_refused(store: TableStore) -> None:
    table = store.create(TableSpec("t", TRADES, ("symbol",)))
    table.commit_keyed(many(0, 2000), None, commit(1))
    table.get_many([f"s{number:06d}" for number in range(2000)])
    use = table.stats().memory
    store.budget.total = use.needed + use.rows // 2
    table.commit_keyed(many(2000, 10), None, commit(2))
    assert table.stats().memory.rows == 0
    assert [row.volume for row in table.get_many(["s000003", "s002009"]) if row] == [3, 2009]


def test_changes_can_be_followed_with_asyncio(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)

    async def follow() -> list[int]:
        seen = []
        async for version, rows in table.changes(after=0):
            seen.append(version)
            assert rows.num_rows == 1
            if version == 3:
                break
        return seen

    async def both() -> list[int]:
        following = asyncio.create_task(follow())
        for number in range(1, 4):
            await asyncio.to_thread(table.commit_keyed, many(number, 1), None, commit(number))
        return await asyncio.wait_for(following, 30)

    assert asyncio.run(both()) == [1, 2, 3]


def test_following_with_asyncio_ends_in_time_with_the_table_and_on_closing(
    store: TableStore, keyed_spec: TableSpec
) -> None:
    table = store.create(keyed_spec)

    async def every(after: int, timeout: float | None) -> list[int]:
        return [version async for version, _ in table.changes(after=after, timeout=timeout)]

    table.commit_keyed(many(1, 1), None, commit(1))
    assert asyncio.run(every(0, 0)) == [1]

    async def until_closed() -> list[int]:
        following = table.changes(after=1)
        task = asyncio.create_task(anext(following, None))
        await asyncio.to_thread(following.close)
        return await asyncio.wait_for(task, 30)

    async def until_dropped() -> list[int]:
        following = asyncio.create_task(every(1, None))
        await asyncio.to_thread(store.drop, "trades")
        return await asyncio.wait_for(following, 30)

    assert asyncio.run(until_closed()) is None
    with refusal("closed", "trades", why="dropped"):
        asyncio.run(until_dropped())


def test_a_subscriber_that_fell_behind_is_told(tmp_path: Path) -> None:
    options = {"changes.keep.versions": "2"}
    with TableStore(tmp_path) as store:
        table = store.create(TableSpec("t", TRADES, ("symbol",), options))
        for number in range(1, 9):
            table.commit_keyed(many(number, 1), None, commit(number))
            table.checkpoint()
        with refusal("table.lagging_reader", "t") as caught:
            next(table.changes(after=1))
        assert "snapshot" in (caught.value.hint or "")
        assert [version for version, _ in table.changes(after=6, timeout=0)] == [7, 8]
