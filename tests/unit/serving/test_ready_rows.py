"""Rows kept for lookups: never stale, never of another version, whoever writes meanwhile."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from trade_rows import commit

from velostream.model.columns import SHOWN
from velostream.model.tables import TableSpec
from velostream.serving.columns import segments
from velostream.serving.durable.table_files import Journal
from velostream.serving.sql.cache import Asker
from velostream.serving.sql.questions import Questions

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from velostream.serving.contract.table import Table
    from velostream.serving.table.store import TableStore

_ASKER = Asker(Questions())
SCHEMA = pa.schema([("k", pa.string()), ("part", pa.int64()), ("v", pa.int64()), ("note", pa.string())])


def rows_of(values: dict[tuple[str, int], int]) -> pa.Table:
    return pa.table(
        {
            "k": [key for key, _ in values],
            "part": [part for _, part in values],
            "v": list(values.values()),
            "note": [f"note {value % 3}" for value in values.values()],
        },
        schema=SCHEMA,
    )


def keys_of(keys: list[tuple[str, int]]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([key for key, _ in keys], pa.string()),
            "part": pa.array([p for _, p in keys], pa.int64()),
        }
    )


@pytest.mark.parametrize("key", [("k",), ("k", "part"), ("part", "k")])
def test_lookups_equal_a_dict_through_random_commits(
    store: TableStore,
    rng: Random,
    rounds: Callable[[int, int], int],
    monkeypatch: pytest.MonkeyPatch,
    key: tuple[str, ...],
) -> None:
    monkeypatch.setattr(segments, "BLOCK", 8)
    monkeypatch.setattr(segments, "OFTEN", 3)
    table = store.create(TableSpec("t", SCHEMA, key))
    truth: dict[tuple[str, int], int] = {}
    held: list[tuple[Any, dict[tuple[str, int], int]]] = []
    pool = [(f"k{number:03d}", number % 7) for number in range(120)]

    def given(each: tuple[str, int]) -> Any:
        parts = tuple(each[0] if name == "k" else each[1] for name in key)
        return parts if len(parts) > 1 else parts[0]

    for number in range(rounds(150, 1500)):
        changed = {each: rng.randrange(1000) for each in rng.sample(pool, rng.randrange(12))}
        gone = [each for each in rng.sample(pool, rng.randrange(6)) if each not in changed]
        table.commit_keyed(rows_of(changed), keys_of(gone).select(list(key)), commit(number))
        truth = {each: value for each, value in (truth | changed).items() if each not in gone}
        for each in rng.choices(pool, k=40):
            row = table.get(*given(each)) if len(key) > 1 and rng.random() < 0.5 else table.get(given(each))
            assert (row.v if row is not None else None) == truth.get(each)
            assert (given(each) in table) == (each in truth)
        wanted = rng.choices(pool, k=30)
        assert [row.v if row else None for row in table.get_many(map(given, wanted))] == [
            truth.get(each) for each in wanted
        ]
        if rng.random() < 0.2:
            held = [*held[-4:], (table.version_object, dict(truth))]
        for version, then in held:
            rows = version.lookup_many([given(each) for each in wanted])
            assert [row.v if row else None for row in rows] == [then.get(each) for each in wanted]
            for each in wanted[:5]:
                row = version.lookup(given(each))
                assert (row.v if row is not None else None) == then.get(each)


def test_hidden_rows_are_not_found(store: TableStore) -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), (SHOWN, pa.bool_())])
    table = store.create(TableSpec("t", schema, ("k",)))
    rows = pa.table({"k": ["a", "b"], "v": [1, 2], SHOWN: [True, False]}, schema=schema)
    table.commit_keyed(rows, None, commit(1))
    for _ in range(3):
        assert table.get("a") == ("a", 1)
        assert table.get("b") is None
        assert table.get_many(["a", "b"]) == [("a", 1), None]
        assert "b" not in table


def test_a_key_that_cannot_be_hashed_is_not_there(store: TableStore) -> None:
    table = store.create(TableSpec("t", SCHEMA, ("k",)))
    assert table.get(["a"]) is None
    assert table.get_many([["a"], "a"]) == [None, None]


def test_a_commit_that_fails_leaves_lookups_as_they_were(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = store.create(TableSpec("t", SCHEMA, ("k",)))
    table.commit_keyed(rows_of({("a", 1): 1, ("b", 1): 1}), None, commit(1))
    assert table.get("a") is not None
    monkeypatch.setattr(Journal, "record", _refuse)
    with pytest.raises(OSError, match="refused"):
        table.commit_keyed(rows_of({("a", 1): 2}), None, commit(2))
    monkeypatch.undo()
    assert table.version_object.link.newest
    assert [row.v for row in table.get_many(["a", "b"]) if row] == [1, 1]


def _refuse(*_: object) -> None:
    raise OSError("refused")


def test_readers_see_whole_versions_while_a_writer_goes_on(
    store: TableStore, rounds: Callable[[int, int], int]
) -> None:
    """Every commit gives all rows one number and deletes or brings back a third of them."""
    table = store.create(TableSpec("t", SCHEMA, ("k",)))
    table.commit_keyed(_numbered(0), None, commit(0))
    problems: list[str] = []
    done = threading.Event()
    readers = [
        threading.Thread(target=_watch, args=(reader, table, done, problems))
        for reader in (_whole_batches, _never_backwards, _aggregates_agree, _streams_are_whole)
    ]
    for reader in readers:
        reader.start()
    for number in range(1, rounds(15, 1000)):
        table.commit_keyed(_numbered(number), _third() if number % 2 else None, commit(number))
    done.set()
    for reader in readers:
        reader.join()
    assert not problems


_KEYS = [f"k{number:04d}" for number in range(900)]


def _numbered(number: int) -> pa.Table:
    keys = [key for place, key in enumerate(_KEYS) if not number % 2 or place % 3]
    return rows_of({(key, 1): number for key in keys})


def _third() -> pa.Table:
    return pa.table({"k": _KEYS[::3]})


def _watch(
    reader: Callable[[Table], str | None], table: Table, done: threading.Event, problems: list[str]
) -> None:
    try:
        while not done.is_set() and not problems:
            problem = reader(table)
            if problem is not None:
                problems.append(problem)
    except BaseException as exc:  # a reader must not fail either
        problems.append(repr(exc))
        raise


def _whole_batches(table: Table) -> str | None:
    rows = table.get_many(_KEYS)
    values = {row.v for row in rows if row is not None}
    there = [row is not None for row in rows[::3]]
    if len(values) != 1 or len(set(there)) != 1 or any(row is None for row in rows[1::3]):
        return f"get_many saw versions {values}, a third there: {set(there)}"
    return None if there[0] == (values.pop() % 2 == 0) else "rows of one version, keys of another"


def _never_backwards(table: Table) -> str | None:
    seen = 0
    for key in (*_KEYS[1:300], *_KEYS[1:300:7]):
        row = table.get(key)
        if row is None:
            if _KEYS.index(key) % 3:
                return f"{key} was not there"
        elif row.v < seen:
            return f"{key} was of version {row.v} after {seen}"
        else:
            seen = row.v
    return None


def _aggregates_agree(table: Table) -> str | None:
    version = table.version_object
    low, high = (_ASKER.scalar(version, f"{kind}(v)", "part = 1") for kind in ("MIN", "MAX"))
    count = _ASKER.scalar(version, "COUNT(*)", "part = 1")
    if low != high or count != (900 if low % 2 == 0 else 600) or count != len(version):
        return f"one version has {count} rows from {low} to {high}"
    return None


def _streams_are_whole(table: Table) -> str | None:
    values = {value for batch in table.stream() for value in batch.column("v").to_pylist()}
    return None if len(values) == 1 else f"a stream saw versions {values}"
