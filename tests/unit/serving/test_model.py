"""Random commits, reopenings, cuts and checkpoints against a plain Python model."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from trade_rows import commit

from velostream.model.tables import TableSpec
from velostream.serving.columns.hashing import hash_rows
from velostream.serving.columns.values import KeyCodec, freeze
from velostream.serving.index import equality as postings
from velostream.serving.index import matching
from velostream.serving.memory import changes
from velostream.serving.table.store import TableStore

SCHEMA = pa.schema(
    [
        pa.field("a", pa.string()),
        pa.field("b", pa.float64()),
        pa.field("amount", pa.decimal128(30, 3)),
        pa.field("note", pa.list_(pa.int32())),
    ]
)

texts = st.one_of(st.none(), st.sampled_from(["x", "y", "z", "é", ""]))
floats = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]))
amounts = st.one_of(
    st.none(), st.decimals(-(10**20), 10**20, places=3, allow_nan=False, allow_infinity=False)
)
notes = st.one_of(st.none(), st.lists(st.integers(0, 3), max_size=2))
rows = st.lists(st.tuples(texts, floats, amounts, notes), max_size=6)
keys = st.lists(st.tuples(texts, floats), max_size=4)

Row = tuple[Any, ...]


def table_of(given: list[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in given], schema=schema)


def identity(row: Row) -> Any:
    return freeze(row)


def contents(table: pa.Table) -> Counter[Any]:
    return Counter(identity(tuple(row.values())) for row in table.to_pylist())


class _Machine(RuleBasedStateMachine):
    key: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.store = TableStore(self.root)
        options = {"changes.keep.versions": "3"}
        self.table = self.store.create(TableSpec("t", SCHEMA, self.key, options))
        self.batch = 0
        self.held: list[tuple[Any, Counter[Any]]] = []
        self.history: dict[int, Counter[Any]] = {0: Counter()}

    def model(self) -> Counter[Any]:
        raise NotImplementedError

    def next_commit(self) -> Any:
        self.batch += 1
        return commit(self.batch)

    def remember(self) -> None:
        self.history[self.table.version] = self.model()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = TableStore(self.root)
        self.table = self.store.open("t")

    @rule()
    def reopen_after_a_torn_write(self) -> None:
        self.store.close()
        logs = sorted((self.root / "t").glob("log-*"))
        if logs:
            with logs[-1].open("ab") as file:
                file.write(b"VLF1 unfinished")
        self.store = TableStore(self.root)
        self.table = self.store.open("t")

    @rule()
    def checkpoint(self) -> None:
        self.table.checkpoint()

    @rule()
    def hold_a_version(self) -> None:
        self.held = [*self.held[-3:], (self.table.version_object, self.model())]

    @invariant()
    def the_table_is_the_model(self) -> None:
        assert contents(self.table.snapshot()) == self.model()
        assert len(self.table) == self.model().total()
        last = self.table.last_commit
        assert (last.batch if last else 0) == self.batch

    @invariant()
    def held_versions_stay_as_they_were(self) -> None:
        for version, then in self.held:
            assert contents(version.snapshot()) == then

    @invariant()
    def changes_lead_from_version_to_version(self) -> None:
        newest = self.table.version
        for after in range(max(0, newest - 2), newest):
            state = Counter(self.history[after])
            for row in self.table.changes_between(after, newest).to_pylist():
                weight = row.pop("_weight")
                state[identity(tuple(row.values()))] += weight
            assert min(state.values(), default=0) >= 0
            assert +state == self.model()

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.root)


class KeyedMachine(_Machine):
    key = ("a", "b")

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[Any, Row] = {}

    def model(self) -> Counter[Any]:
        return Counter(identity(row) for row in self.rows.values())

    @rule(upserts=rows, deletes=keys)
    def commit(self, upserts: list[Row], deletes: list[Row]) -> None:
        key_schema = pa.schema([SCHEMA.field("a"), SCHEMA.field("b")])
        self.table.commit_keyed(table_of(upserts), table_of(deletes, key_schema), self.next_commit())
        for key in deletes:
            self.rows.pop(identity(key), None)
        for row in upserts:
            self.rows[identity(row[:2])] = row
        self.remember()

    @rule(given=rows)
    def replace_all(self, given: list[Row]) -> None:
        self.table.replace_all(table_of(given), self.next_commit())
        self.rows = {identity(row[:2]): row for row in given}
        self.remember()

    @rule(wanted=keys)
    def look_up(self, wanted: list[Row]) -> None:
        found = self.table.get_many(wanted)
        expected = [self.rows.get(identity(key)) for key in wanted]
        assert [identity(row) if row is not None else None for row in found] == [
            identity(row) if row is not None else None for row in expected
        ]
        codec = KeyCodec(SCHEMA, self.key)
        for version, then in self.held:
            ids = [version.find(codec.encode(key)) for key in wanted]
            seen = [version.row(each) for each in ids if each is not None]
            assert all(identity(tuple(row)) in then for row in seen if row is not None)


class MultisetMachine(_Machine):
    def __init__(self) -> None:
        super().__init__()
        self.rows: Counter[Any] = Counter()
        self.samples: dict[Any, Row] = {}
        self.patches = ExitStack()

    @initialize(mask=st.sampled_from([0, 3, 2**64 - 1]), few=st.sampled_from([0, 64]))
    def choose_how_rows_are_found(self, mask: int, few: int) -> None:
        """With hashes that many different rows share, and as in large commits or as in small ones."""

        def weak_hash(given: Any, columns: Any) -> Any:
            return hash_rows(given, columns) & np.uint64(mask)

        for module in (changes, matching, postings):
            self.patches.enter_context(patch.object(module, "hash_rows", weak_hash))
        self.patches.enter_context(patch.object(changes, "FEW", few))

    def teardown(self) -> None:
        self.patches.close()
        super().teardown()

    def model(self) -> Counter[Any]:
        return Counter(self.rows)

    @rule(given=rows)
    def add(self, given: list[Row]) -> None:
        self.table.commit_rows(table_of(given), None, self.next_commit())
        self._count(given, [1] * len(given))

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), extra=rows)
    def take_back(self, data: st.DataObject, extra: list[Row]) -> None:
        present = sorted(self.rows, key=repr)
        chosen = data.draw(st.lists(st.sampled_from(present), min_size=1, max_size=3, unique_by=repr))
        taken = [(self.samples[each], -data.draw(st.integers(1, self.rows[each]))) for each in chosen]
        again = data.draw(st.lists(st.sampled_from(present), max_size=3))
        added = extra + [self.samples[each] for each in again]
        pairs = taken + [(row, data.draw(st.integers(0, 3))) for row in added]
        pairs = data.draw(st.permutations(pairs))
        given, weights = [row for row, _ in pairs], [weight for _, weight in pairs]
        self.table.commit_rows(table_of(given), pa.array(weights), self.next_commit())
        self._count(given, weights)

    @rule(wanted=st.lists(texts, min_size=1, max_size=2))
    def remove_where(self, wanted: list[str | None]) -> None:
        """Null equals nothing; a commit that changes nothing is not made."""
        going = {each for each in self.rows if (text := self.samples[each][0]) is not None and text in wanted}
        keys = pa.table({"a": pa.array(wanted, pa.string())})
        self.table.remove_where(keys, self.next_commit() if going else commit(self.batch))
        self.rows = Counter({each: count for each, count in self.rows.items() if each not in going})
        self.remember()

    @rule(given=rows)
    def replace_all(self, given: list[Row]) -> None:
        self.table.replace_all(table_of(given), self.next_commit())
        self.rows = Counter()
        self._count(given, [1] * len(given))

    def _count(self, given: list[Row], weights: list[int]) -> None:
        for row, weight in zip(given, weights, strict=True):
            self.rows[identity(row)] += weight
            self.samples[identity(row)] = row
        self.rows = +self.rows
        self.remember()


quick = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestKeyed = KeyedMachine.TestCase
TestKeyed.settings = quick
TestMultiset = MultisetMachine.TestCase
TestMultiset.settings = quick

long = settings(quick, max_examples=2000, stateful_step_count=60)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestKeyedLong(KeyedMachine.TestCase):  # type: ignore[misc, name-defined]
    settings = long


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestMultisetLong(MultisetMachine.TestCase):  # type: ignore[misc, name-defined]
    settings = long
