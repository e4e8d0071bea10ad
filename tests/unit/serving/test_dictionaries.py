"""Texts that repeat are held as codes, and nobody can tell."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from trade_rows import commit

from velostream.model.tables import TableSpec
from velostream.serving.columns import dictionaries
from velostream.serving.columns.dictionaries import CODES, Dictionaries, plain_column
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from velostream.serving.contract.table import Table

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64()),
        pa.field("status", pa.string()),
        pa.field("town", pa.string()),
        pa.field("note", pa.string()),
        pa.field("__shown", pa.bool_()),
    ]
)
VISIBLE = SCHEMA.names[:-1]


def rows_of(*rows: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def kinds(table: Table) -> dict[str, list[pa.DataType]]:
    batches = [view.segment.batch for view in table.version_object.views]
    return {name: [batch.column(name).type for batch in batches] for name in table.spec.schema.names}


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that columns of a few hundred rows turn out not to repeat."""
    monkeypatch.setattr(dictionaries, "MOST", 24)
    monkeypatch.setattr(dictionaries, "ALWAYS", 6)
    monkeypatch.setattr(dictionaries, "SAMPLE", 8)


class Twins:
    """A table as it is, and one that holds texts only."""

    def __init__(self, root: Path, spec: TableSpec) -> None:
        self._root = root
        self._spec = spec
        self._stores: list[TableStore] = []
        self.batch = 0
        self.open()
        for store in self._stores:
            store.create(spec)

    def open(self) -> None:
        self._stores = [TableStore(self._root / name) for name in ("codes", "texts")]

    def close(self) -> None:
        for store in self._stores:
            store.close()

    @property
    def tables(self) -> Iterator[Table]:
        for number, store in enumerate(self._stores):
            # No text gets a code where not even one is allowed.
            with patch.object(dictionaries, "MOST", -1) if number else nullcontext():
                yield store.open(self._spec.name)

    def change(self, work: Callable[[Table, Any], Any]) -> None:
        self.batch += 1
        for table in self.tables:
            work(table, commit(self.batch))

    def compare(self, ask: Callable[[Table], Any]) -> Any:
        coded, texts = (ask(table) for table in self.tables)
        if isinstance(coded, pa.Table | pa.ChunkedArray):
            assert coded.equals(texts)
            kind = coded.schema if isinstance(coded, pa.Table) else coded.type
            assert kind == (texts.schema if isinstance(texts, pa.Table) else texts.type)
        assert coded == texts
        return coded


def _row(rng: random.Random, key: int, spread: int) -> tuple[Any, ...]:
    status = rng.choice(["active", "done", "", "ünïcode", None])
    town = rng.choice([None, *(f"town {number}" for number in range(spread))])
    return (key, status, town, f"note {rng.random()}", rng.random() < 0.9)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("key", [("k",), ("k", "status"), ()])
def test_nothing_that_can_be_asked_depends_on_codes(
    tmp_path: Path, rng: random.Random, rounds: Callable[[int, int], int], key: tuple[str, ...]
) -> None:
    for number in range(rounds(3, 60)):
        twins = Twins(tmp_path / str(number), TableSpec("t", SCHEMA, key))
        for _ in range(12):
            _change_something(twins, rng, key)
            _ask_everything(twins, rng, key)
        twins.close()


def _change_something(twins: Twins, rng: random.Random, key: tuple[str, ...]) -> None:
    kind = rng.random()
    spread = rng.choice([2, 5, 40])
    given = rows_of(*(_row(rng, rng.randrange(60), spread) for _ in range(rng.choice([1, 5, 40, 120]))))
    if kind < 0.1:
        twins.close()
        twins.open()
    elif kind < 0.2:
        twins.change(lambda table, _: table.checkpoint())
    elif kind < 0.3:
        twins.change(lambda table, at: table.replace_all(given, at))
    elif key:
        deletes = given.select(list(key)).slice(0, rng.randrange(6))
        twins.change(lambda table, at: table.commit_keyed(given, deletes, at))
    elif rng.random() < 0.7:
        twins.change(lambda table, at: table.commit_rows(given, None, at))
    else:
        held = next(twins.tables).version_object.physical()
        gone = held.slice(rng.randrange(max(1, held.num_rows)), 10)
        weights = pa.array([-1] * gone.num_rows, pa.int64())
        twins.change(lambda table, at: table.commit_rows(gone, weights, at))


def _ask_everything(twins: Twins, rng: random.Random, key: tuple[str, ...]) -> None:
    town = f"town {rng.randrange(5)}"
    compare = twins.compare
    compare(lambda table: table.snapshot())
    compare(lambda table: pa.Table.from_batches(table.stream(), table.spec.visible_schema))
    compare(lambda table: list(table.rows()))
    compare(lambda table: table.page(7, 3))
    compare(lambda table: table.version_object.physical())
    for name in VISIBLE:
        compare(lambda table, name=name: table.column(name))
        compare(lambda table, name=name: table.column(name, f"town = '{town}'"))
        compare(lambda table, name=name: table.column_values(name))
        compare(lambda table, name=name: table.column_values(name, "status <> 'active'"))
        compare(lambda table, name=name: table.scalar(f"COUNT({name})", f"town = '{town}' AND k > 5"))
    compare(lambda table: table.scalar("MAX(town)", "status = ''"))
    compare(lambda table: table.count("status = 'no such status'"))
    compare(lambda table: sorted(table.column_values("k", "upper(town) LIKE 'TOWN 1%' OR status IS NULL")))
    compare(lambda table: table.fetch_where(["town"], pa.table({"town": [town, "elsewhere"]})))
    wanted = pa.table({"status": ["active", ""], "town": [town, town]})
    compare(lambda table: table.fetch_where(["status", "town"], wanted))
    newest = next(twins.tables).version
    compare(lambda table: table.changes_between(max(0, newest - 2), newest))
    if len(key) == 1:
        compare(lambda table: [table.get(number) for number in range(60)])
        compare(lambda table: table.get_many(list(range(60))))
        compare(lambda table: table.fetch(pa.table({"k": [3, 99, 7]})))
    elif key:
        compare(lambda table: [table.get(number, "done") for number in range(60)])


# --- what is held as codes --------------------------------------------------------------------------


def _transactions(count: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + count)
    return rows_of(*((n, f"s{n % 4}", f"town {n % 50}", f"note {n}", True) for n in numbers))


def test_columns_that_repeat_are_codes_in_memory_and_on_disk(store: TableStore) -> None:
    table = store.create(TableSpec("t", SCHEMA, ("k",)))
    table.commit_keyed(_transactions(20_000), None, commit(1))
    assert kinds(table)["status"] == [CODES]
    assert kinds(table)["town"] == [CODES]
    assert kinds(table)["note"] == [pa.string()]
    texts = table.snapshot()
    assert texts.schema == table.spec.visible_schema
    assert table.stats().memory.columns < 0.7 * texts.nbytes
    on_disk = table.stats().disk_bytes
    assert on_disk < 0.9 * texts.nbytes + 16 * len(table)


def test_a_key_of_one_column_is_held_as_it_is(store: TableStore) -> None:
    schema = pa.schema([("name", pa.string()), ("town", pa.string())])
    table = store.create(TableSpec("t", schema, ("name",)))
    table.commit_keyed(pa.table({"name": ["a", "b"], "town": ["Ulm", "Ulm"]}, schema), None, commit(1))
    assert kinds(table) == {"name": [pa.string()], "town": [CODES]}


def test_a_column_that_stops_repeating_becomes_texts_as_segments_merge(store: TableStore) -> None:
    table = store.create(TableSpec("t", SCHEMA, ("k",)))
    table.commit_keyed(_transactions(3_000), None, commit(1))
    assert kinds(table)["town"] == [CODES]
    other = rows_of(*((n, "s", f"town of {n}", None, True) for n in range(3_000, 6_000)))
    table.commit_keyed(other, None, commit(2))
    assert set(kinds(table)["town"]) == {pa.string()}
    assert set(kinds(table)["status"]) == {CODES}
    assert table.get(5).town == "town 5"
    assert table.get(5_005).town == "town of 5005"
    assert table.count("town = 'town 5'") == 60


def test_segments_share_one_list_of_texts_after_reopening(tmp_path: Path) -> None:
    spec = TableSpec("t", SCHEMA, ("k",))
    with TableStore(tmp_path) as store:
        table = store.create(spec)
        table.commit_keyed(_transactions(5_000), None, commit(1))
        table.checkpoint()
        table.commit_keyed(rows_of((1, "new", "a new town", None, True)), None, commit(2))
        before = table.snapshot()
    with TableStore(tmp_path) as store:
        table = store.open("t")
        table.commit_keyed(rows_of((2, "newer", "another town", None, True)), None, commit(3))
        assert kinds(table)["town"] == [CODES] * len(table.version_object.views)
        column = table.version_object.encoded.column("town")
        assert column.type == CODES
        assert all(piece.dictionary.equals(column.chunk(0).dictionary) for piece in column.chunks)
        assert table.snapshot().num_rows == before.num_rows
        assert [table.get(number).town for number in (0, 1, 2)] == ["town 0", "a new town", "another town"]


def test_codes_are_kept_when_the_schema_widens(store: TableStore) -> None:
    table = store.create(TableSpec("t", SCHEMA, ("k",)))
    table.commit_keyed(_transactions(100), None, commit(1))
    table.evolve(SCHEMA.append(pa.field("more", pa.string())))
    assert kinds(table)["town"] == [CODES]
    assert table.get(3) == (3, "s3", "town 3", "note 3", None)
    table.commit_keyed(table.version_object.physical().slice(0, 5), None, commit(2))
    assert table.version == 1


def test_texts_that_are_not_utf8_are_held_as_they_are(store: TableStore) -> None:
    spec = TableSpec("t", pa.schema([("k", pa.int64()), ("town", pa.string())]), ("k",))
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0])), pa.py_buffer(b"\xff")]
    )
    coded = Dictionaries(spec).encode(pa.table([pa.array([1]), broken], schema=spec.schema))
    assert coded.schema == spec.schema
    assert store.create(spec).version == 0


def test_texts_longer_in_all_than_one_array_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TableSpec("t", pa.schema([("k", pa.int64()), ("town", pa.string())]), ("k",))
    rows = pa.table({"k": range(100), "town": [f"town {n % 3}" for n in range(100)]}, schema=spec.schema)
    coded = Dictionaries(spec).encode(rows).column("town")
    monkeypatch.setattr(dictionaries, "LONGEST", 60)
    texts = plain_column(coded)
    assert texts.num_chunks > 1
    assert texts.equals(rows.column("town"))


def test_a_sample_tells_a_column_of_many_texts_without_hashing_all_of_it() -> None:
    spec = TableSpec("t", pa.schema([("k", pa.int64()), ("town", pa.string())]), ("k",))
    made = Dictionaries(spec)
    numbers = range(100_000)
    for different, kind in ((20_000, CODES), (100_000, pa.string())):
        towns = pa.array([f"town {n % different}" for n in numbers])
        rows = pa.table([pa.array(numbers), towns], schema=spec.schema)
        assert Dictionaries(spec).encode(rows).column("town").type == kind
    assert made.encode(spec.schema.empty_table()).num_rows == 0
