"""The contract of tables: derive from `TableContract`, and give it a storage to make them in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

from velostream.engine.on_spark import SparkTable, SparkVersion
from velostream.errors import ClosedError, InternalError, KeyExistsError, TableError
from velostream.model.changes import Commit
from velostream.model.columns import SHOWN, WEIGHT
from velostream.model.moments import micros
from velostream.model.tables import Retention, TableSpec
from velostream.serving.contract.readable import FOUND
from velostream.serving.contract.version import Columnar
from velostream.serving.table.end import End

if TYPE_CHECKING:
    from collections.abc import Mapping

    from velostream.model.table_storage import StorageTraits
    from velostream.serving.contract.table import Table
    from velostream.serving.contract.version import TableVersion
    from velostream.serving.table.store import TableStore

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
Row = tuple[Any, ...]


class Home(ABC):
    """Where tables of one storage are made; its clock is the test's to move."""

    traits: ClassVar[StorageTraits]
    gaps: ClassVar[Mapping[str, str]] = {}
    """Tests that tables of this storage cannot pass, each with its reason. A gap that closes is a failure."""

    def __init__(self) -> None:
        self.now = NOON

    @abstractmethod
    def store(self, *, read_only: bool = False) -> TableStore:
        """The tables in the folder of this home, with the storage among those that it knows."""

    def spec(self, *key: str, schema: pa.Schema = COLUMNS, **options: str) -> TableSpec:
        """A table of this storage."""
        return TableSpec("t", schema, key, {**self.traits.options(), **options})


class TableContract:
    """Tables of every storage pass these."""

    @pytest.fixture
    def home(self) -> Home:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def declared_gaps(self, request: pytest.FixtureRequest, home: Home) -> None:
        reason = home.gaps.get(request.node.originalname)
        if reason is not None:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

    # --- capabilities -----------------------------------------------------------------------------------

    def test_traits_tell_who_reads_the_rows(self, home: Home) -> None:
        with home.store() as store:
            table = store.create(home.spec("id"))
            assert table.traits is home.traits
            assert isinstance(table, SparkTable) is not home.traits.in_memory
            assert isinstance(table.version_object, Columnar) is home.traits.in_memory
            assert isinstance(table.version_object, SparkVersion) is not home.traits.in_memory

    def test_rows_leave_by_the_clock_where_the_traits_say_so(self, home: Home) -> None:
        aged = home.spec("id", **Retention(micros=60_000_000).options())
        with home.store() as store:
            if not home.traits.expires:
                with pytest.raises(TableError, match="cannot age out"):
                    store.create(aged)
                table = store.create(home.spec("id"))
                table.upsert([(1, "a")])
                home.now += timedelta(days=365)
                assert (table.next_due, table.expire(), len(table)) == (None, 1, 1)
                assert not table.only_forgot(0, 1)
                return
            schema = COLUMNS.append(pa.field("__expires", pa.int64()))
            table = store.create(home.spec("id", schema=schema, **aged.options))
            table.upsert([(1, "a")])
            assert table.next_due == micros(NOON) + 60_000_000
            home.now += timedelta(minutes=2)
            table.upsert([(2, "b")])
            before = table.version
            assert table.expire(forget=True) == before + 1
            assert [row.id for row in table.rows()] == [2]
            assert table.only_forgot(before, table.version)
            assert table.changes_between(before, table.version, forgotten=False).num_rows == 0

    # --- commits of a job -------------------------------------------------------------------------------

    def test_an_empty_table_is_there_and_has_nothing(self, home: Home) -> None:
        with home.store() as store:
            table = store.create(home.spec("id"))
            assert (len(table), table.version, table.last_commit) == (0, 0, None)
            assert (table.get(1), table.get_many([1, 2]), table.page()) == (None, [None, None], [])
            assert table.snapshot().equals(COLUMNS.empty_table())
            assert table.fetch(keys(1)).column(FOUND).to_pylist() == [False]
            assert (list(table.stream()), list(table.rows()), bool(table)) == ([], [], True)
            assert [(each.name, each.key) for each in table.describe()] == [("id", True), ("name", False)]

    def test_commits_by_key(self, home: Home) -> None:
        with home.store() as store:
            table = store.create(home.spec("id"))
            assert table.commit_keyed(rows((1, "a"), (2, "b"), (1, "A")), None, commit(1)) == 1
            held = table.version_object
            assert content(table) == Counter([(1, "A"), (2, "b")])
            # Deletes first; a row that stays as it is drops out of the changes.
            assert table.commit_keyed(rows((2, "b"), (3, "c")), keys(1, 2, 9), commit(2)) == 2
            assert content(table) == Counter([(2, "b"), (3, "c")])
            assert weighed(table, 1, 2) == Counter({(1, "A"): -1, (3, "c"): 1})
            assert table.last_commit == commit(2)
            # Nothing changes: the commit is recorded, the version stays.
            assert table.commit_keyed(rows((3, "c")), None, commit(3)) == 2
            assert (table.version, table.last_commit) == (2, commit(3))
            # A version that somebody holds stays as it is.
            assert sorted(held.snapshot().column("name").to_pylist()) == ["A", "b"]
            with pytest.raises(InternalError, match="has a key"):
                table.commit_rows(rows((4, "d")), None, commit(4))
        with home.store() as store:
            again = store.open("t")
            assert (content(again), again.version) == (Counter([(2, "b"), (3, "c")]), 2)
            assert again.last_commit == commit(3)

    def test_commits_of_a_multiset(self, home: Home) -> None:
        with home.store() as store:
            table = store.create(home.spec())
            table.commit_rows(rows((1, "a"), (1, "a"), (2, None)), None, commit(1))
            assert content(table) == Counter({(1, "a"): 2, (2, None): 1})
            weights = pa.array([-1, 2, -1], pa.int64())
            table.commit_rows(rows((1, "a"), (3, "c"), (2, None)), weights, commit(2))
            assert content(table) == Counter({(1, "a"): 1, (3, "c"): 2})
            assert weighed(table, 1, 2) == Counter({(1, "a"): -1, (3, "c"): 2, (2, None): -1})
            with pytest.raises(InternalError, match="is to lose"):
                table.commit_rows(rows((1, "a")), pa.array([-2], pa.int64()), commit(3))
            assert (table.version, table.last_commit) == (2, commit(2))
            assert table.remove_where(keys(3, 8), commit(3)) == 3
            assert content(table) == Counter({(1, "a"): 1})
            assert table.remove_where(keys(8), commit(4)) == 3
            with pytest.raises(InternalError, match="has no key"):
                table.commit_keyed(rows((4, "d")), None, commit(5))
            with pytest.raises(TableError, match="has no key"):
                table.get(1)

    @pytest.mark.parametrize("key", [("id",), ()])
    def test_the_whole_content_is_replaced_by_its_difference(self, home: Home, key: tuple[str, ...]) -> None:
        with home.store() as store:
            table = store.create(home.spec(*key))
            table.replace_all(rows((1, "a"), (2, "b")), commit(1))
            table.replace_all(rows((2, "b"), (3, "c")), commit(2))
            assert content(table) == Counter([(2, "b"), (3, "c")])
            assert weighed(table, 1, 2) == Counter({(1, "a"): -1, (3, "c"): 1})
            assert table.truncate() == 3
            assert (len(table), weighed(table, 2, 3)) == (0, Counter({(2, "b"): -1, (3, "c"): -1}))

    def test_hidden_columns_and_rows_are_the_jobs_alone(self, home: Home) -> None:
        hidden = COLUMNS.append(pa.field("__n", pa.int64())).append(pa.field(SHOWN, pa.bool_()))
        with home.store() as store:
            table = store.create(home.spec("id", schema=hidden))
            given = [
                {"id": 1, "name": "a", "__n": 3, SHOWN: True},
                {"id": 2, "name": "b", "__n": 1, SHOWN: False},
            ]
            table.commit_keyed(pa.Table.from_pylist(given, hidden), None, commit(1))
            assert (len(table), table.count(), table.get(2), table.get(1)) == (1, 1, None, (1, "a"))
            assert content(table) == weighed(table, 0, 1) == Counter([(1, "a")])
            assert table.snapshot().schema.equals(COLUMNS)
            assert table.fetch(keys(2)).drop_columns([FOUND]).to_pylist() == given[1:]
            version = table.version_object
            assert sorted(version.physical().column("__n").to_pylist()) == [1, 3]
            assert version.physical_where(("id",), keys(2)).column("__n").to_pylist() == [1]
            assert version.fetch_where(("id",), keys(1, 2)).to_pylist() == [{"id": 1, "name": "a"}]
            assert pieces(version, "__n") == [1, 3]

    # --- reading ----------------------------------------------------------------------------------------

    def test_rows_are_found_by_key_and_by_value(self, home: Home) -> None:
        with home.store() as store:
            table = store.create(home.spec("id"))
            table.commit_keyed(rows((1, "a"), (2, "b"), (3, None)), None, commit(1))
            assert table.get_many([3, 9, 1, "no number"]) == [(3, None), None, (1, "a"), None]
            assert 2 in table
            assert table.get(1).name == "a"
            found = table.fetch(keys(2, 7, 2))
            assert found.column(FOUND).to_pylist() == [True, False, True]
            assert found.column("name").to_pylist() == ["b", None, "b"]
            wanted = pa.table({"name": pa.array(["b", None, "x", "b"], pa.string())})
            assert table.fetch_where(("name",), wanted).to_pylist() == [{"id": 2, "name": "b"}]

    def test_a_key_of_several_columns(self, home: Home) -> None:
        with home.store() as store:
            table = store.create(home.spec("id", "name"))
            table.commit_keyed(rows((1, "a"), (1, None)), None, commit(1))
            assert (table.get(1, "a"), table.get(1, None)) == ((1, "a"), (1, None))
            assert table.get_many([(1, "b"), (1, None)]) == [None, (1, None)]
            assert table.delete([(1, None), (1, "b")]) == 1
            assert content(table) == Counter([(1, "a")])

    def test_questions_and_pages(self, home: Home) -> None:
        with home.store() as store:
            table = store.create(home.spec("id"))
            table.commit_keyed(rows(*((n, f"n{n % 2}") for n in range(10))), None, commit(1))
            assert (table.count("name = 'n1'"), table.scalar("SUM(id)")) == (5, 45)
            assert sorted(table.column_values("NAME", "id < 3")) == ["n0", "n0", "n1"]
            assert sorted(table.column("id", "id > 7").to_pylist()) == [8, 9]
            assert [row.id for row in table.page(3, 4)] == [4, 5, 6]
            assert sorted(row.id for row in table.rows("id >= 8")) == [8, 9]
            assert sum(batch.num_rows for batch in table.stream()) == 10
            assert table.stats().record_count == 10
            assert table.stats().queries > 0
            assert (table.stats().bytes > 0) is home.traits.in_memory
            assert table.held[0] == 10

    def test_changes_are_followed_and_kept_for_readers(self, home: Home) -> None:
        with home.store() as store:
            table = store.create(home.spec("id"))
            table.register_reader("follower", 0)
            following = table.changes(0, timeout=60)
            table.commit_keyed(rows((1, "a")), None, commit(1))
            table.commit_keyed(rows((1, "b")), None, commit(2))
            seen = [next(following), next(following)]
            assert [version for version, _ in seen] == [1, 2]
            assert seen[1][1].select(["name", WEIGHT]).to_pylist() == [
                {"name": "a", WEIGHT: -1},
                {"name": "b", WEIGHT: 1},
            ]
            table.evolve(COLUMNS.append(pa.field("more", pa.string())))
            assert table.get(1) == (1, "b", None)
            table.release_reader("follower")
            table.checkpoint()
            report = table.verify()
            assert (report.good, report.problem) == (True, None)

    # --- by hand ----------------------------------------------------------------------------------------

    def test_changes_by_hand(self, home: Home) -> None:
        with home.store() as store:
            table = store.create(home.spec("id"))
            assert table.insert([(1, "a"), (2, "b")]) == 2
            for twice in ([(3, "c"), (1, "again")], [(4, "d"), (4, "e")]):
                with pytest.raises(KeyExistsError):
                    table.insert(twice)
            assert table.version == 1
            assert table.upsert([(2, "B"), (3, "c")]) == 2
            assert (table.update(3, name="C"), table.update(9, name="x"), table.update("?", name="x")) == (
                1,
                0,
                0,
            )
            with pytest.raises(TableError, match="cannot be updated"):
                table.update(3, id=4)
            assert table.delete([1, 9, 1]) == table.delete(2) == 1
            assert table.delete(["?"]) == table.delete([]) == 0
            assert content(table) == Counter([(3, "C")])
            last = table.last_commit
            assert last is not None
            assert (last.checkpoint, last.at, last.extra) == ("manual", NOON, {})
            assert table.manual_commit("once").extra == {"statement": "once"}

    def test_changes_by_hand_without_a_key(self, home: Home) -> None:
        with home.store() as store:
            table = store.create(home.spec())
            assert table.insert([(1, "a"), (1, "a"), (2, "b")]) == 3
            assert table.delete([(1, "a")]) == 1
            assert content(table) == Counter({(1, "a"): 1, (2, "b"): 1})
            for refused in (lambda: table.upsert([(1, "a")]), lambda: table.update(1, name="b")):
                with pytest.raises(TableError, match="has no key"):
                    refused()

    def test_what_a_job_fills_is_not_changed_by_hand(self, home: Home) -> None:
        filled = TableSpec("t", COLUMNS, ("id",), home.traits.options(), owner="job")
        with home.store() as store:
            table = store.create(filled)
            with pytest.raises(TableError, match='is filled by job "job"'):
                table.insert([(1, "a")])

    # --- the end ----------------------------------------------------------------------------------------

    def test_a_table_opened_to_be_read_refuses_changes(self, home: Home) -> None:
        with home.store() as store:
            store.create(home.spec("id")).insert([(1, "a")])
        with home.store(read_only=True) as store:
            table = store.open("t")
            assert table.read_only
            assert table.get(1) == (1, "a")
            for write in (
                lambda: table.insert([(2, "b")]),
                lambda: table.commit_keyed(rows((2, "b")), None, commit(2)),
                lambda: table.remove_where(keys(1), commit(2)),
                lambda: table.expire(),
                lambda: table.truncate(),
                lambda: table.checkpoint(),
            ):
                with pytest.raises(TableError, match="read-only"):
                    write()

    def test_an_ended_table_says_so_and_its_versions_stay(self, home: Home) -> None:
        with home.store() as store:
            table = store.create(home.spec("id"))
            table.commit_keyed(rows((1, "a")), None, commit(1))
            version = table.version_object
            waiting = table.changes()
            table.close(End.REPLACED)
            for use in (
                lambda: table.get(1),
                lambda: len(table),
                lambda: table.next_due,
                lambda: table.traits,
                lambda: table.read_only,
                lambda: table.only_forgot(0, 1),
                lambda: table.version_object,
                lambda: table.insert([(2, "b")]),
                lambda: waiting.next_change(),
            ):
                with pytest.raises(ClosedError, match='table "t" was replaced'):
                    use()
            assert version.snapshot().to_pylist() == [{"id": 1, "name": "a"}]

    def test_a_column_of_maps(self, home: Home) -> None:
        maps = pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), pa.int32()))])
        with home.store() as store:
            table = store.create(home.spec("id", schema=maps))
            table.insert([(1, {"a": 1})])
            assert table.get(1) == (1, {"a": 1})


def rows(*given: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in given], COLUMNS)


def keys(*given: int) -> pa.Table:
    return pa.table({"id": pa.array(given, pa.int64())})


def commit(batch: int) -> Commit:
    return Commit("job", batch, {"source": {"0": batch}}, NOON + timedelta(seconds=batch))


def content(table: Table) -> Counter[Row]:
    return Counter(map(tuple, table.rows()))


def weighed(table: Table, after: int, upto: int) -> Counter[Row]:
    """The net changes between two versions."""
    found: Counter[Row] = Counter()
    for row in table.changes_between(after, upto).to_pylist():
        weight = row.pop(WEIGHT)
        found[tuple(row.values())] += weight
    return Counter({row: weight for row, weight in found.items() if weight})


def pieces(version: TableVersion, column: str) -> list[Any]:
    return sorted(value for piece in version.pieces([column]) for value in piece.column(column).to_pylist())
