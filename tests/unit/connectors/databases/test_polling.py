"""Relations that are asked again and again: each row of theirs is in the log once, and as it is."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from refusals import refusal
from velostream.connectors.base import SourceContext
from velostream.connectors.databases import newest
from velostream.connectors.databases.change_log import ChangeLog
from velostream.connectors.databases.polling import Asked, Polling
from velostream.connectors.databases.source import DatabaseSource, Described
from velostream.connectors.databases.text_rows import Decoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from velostream.connectors.databases.newest import Since

IDS = pa.schema([("id", pa.int64()), ("name", pa.string())])


class KilledError(BaseException):
    """The process ends here."""


class Relation(Asked):
    """Rows that a test changes between two polls; after the last of its changes the reading stops."""

    name = "a relation"

    def __init__(self, schema: pa.Schema, rows: Sequence[tuple[Any, ...]], key: tuple[str, ...] = ()) -> None:
        self.schema, self.key, self.now = schema, key, list(rows)
        self.grows: str | None = None
        self.most: int | None = None
        self.order: Callable[[list[tuple[Any, ...]]], list[list[tuple[Any, ...]]]] = lambda rows: [rows]
        """How the first answer comes: its batches."""
        self.asked: list[Since | None] = []
        self.seen: pa.Schema | None = None

    def describe(self) -> Described:
        if self.seen is None:
            self.look()
        assert self.seen is not None
        return Described(self.seen, self.key)

    def look(self) -> None:
        self.seen = self.schema

    def rows(self, since: Since | None) -> Iterator[Decoded]:
        self.asked.append(since)
        if self.grows is None or since is None:
            for batch in self.order(self.now):
                yield self.batch(batch)
            return
        place = self.schema.names.index(self.grows)
        kind = self.schema.field(place).type
        last = pa.scalar(since.value).cast(kind).as_py()
        found = sorted((row for row in self.now if row[place] is not None), key=lambda row: row[place])
        again = since.sign(keyed=bool(self.key)) == ">="
        found = [row for row in found if row[place] > last or (again and row[place] == last)]
        yield self.batch(found[: None if self.most is None else self.most + since.again])

    def batch(self, rows: Sequence[tuple[Any, ...]]) -> Decoded:
        described = self.describe().schema
        columns = {
            field.name: pa.array([row[n] if n < len(row) else None for row in rows], field.type)
            for n, field in enumerate(described)
        }
        return Decoded(columns, {})


class Job:
    """A log, and who fills it: as often as it is asked to, and again after it was killed."""

    def __init__(self, folder: Path, relation: Relation, grows: str | None = None) -> None:
        self.folder, self.relation, self.grows = folder, relation, grows
        relation.grows = grows
        self.begin()
        self.polling.load(self.log, 0, threading.Event())

    def begin(self) -> None:
        """Start, as after a kill."""
        self.log = ChangeLog(self.folder, "job")
        self.log.open()
        self.relation.seen = None
        self.polling = Polling(self.relation, self.folder, timedelta(milliseconds=1), self.grows)

    def poll(self, times: int = 1) -> None:
        stop, left = threading.Event(), times
        ask = self.relation.rows

        def counted(since: Since | None) -> Iterator[Decoded]:
            nonlocal left
            left -= 1
            if left == 0:
                stop.set()
            return ask(since)

        self.relation.rows = counted  # type: ignore[method-assign]
        try:
            self.polling.follow(self.log, _After(stop))  # type: ignore[arg-type]
        finally:
            self.relation.rows = ask  # type: ignore[method-assign]

    def rows(self) -> list[dict[str, Any]]:
        return [row for _, batch in self.log.between(None, self.log.end) for row in batch.to_pylist()]

    def table(self) -> dict[str, tuple[Any, ...]]:
        """What a job makes of the log: the last row of each key."""
        made: dict[str, tuple[Any, ...]] = {}
        for row in self.rows():
            made.pop(row["_key"], None)
            if not row["_tombstone"]:
                made[row["_key"]] = tuple(value for name, value in row.items() if not name.startswith("_"))
        return made


class _After:
    """Stops between two polls, and not in an answer."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        return self._stop.is_set() or self._stop.wait(seconds)


def ids(job: Job) -> list[int]:
    return [row["id"] for row in job.rows()]


def test_parts_that_end_in_another_order_are_not_read_again(tmp_path: Path) -> None:
    relation = Relation(IDS, [(n, "x") for n in range(1, 9)])
    relation.order = lambda rows: [rows[4:], rows[:4]]
    job = Job(tmp_path, relation, "id")
    job.poll(2)
    assert sorted(ids(job)) == list(range(1, 9))
    job.begin()
    relation.now.append((9, "x"))
    job.poll(2)
    assert sorted(ids(job)) == list(range(1, 10))


@pytest.mark.parametrize("key", [(), ("name",)])
def test_rows_that_come_late_with_the_last_value(tmp_path: Path, key: tuple[str, ...]) -> None:
    relation = Relation(IDS, [(1, "a"), (2, "b"), (2, "c")], key)
    job = Job(tmp_path, relation, "id")
    for number, name in enumerate(("d", "e", "f")):
        relation.now.append((2, name))
        job.poll(2)
        if number == 1:
            job.begin()
    assert sorted((row["id"], row["name"]) for row in job.rows()) == sorted(relation.now)
    relation.now += [(3, "g"), (3, "h")]
    job.poll(3)
    assert sorted((row["id"], row["name"]) for row in job.rows()) == sorted(relation.now)


def test_equal_rows_without_a_key_are_as_many_as_they_are(tmp_path: Path) -> None:
    relation = Relation(IDS, [(1, "a"), (1, "a")])
    job = Job(tmp_path, relation, "id")
    relation.now.append((1, "a"))
    job.poll(3)
    assert ids(job) == [1, 1, 1]


def test_a_limit_does_not_hide_rows_with_the_last_value(tmp_path: Path) -> None:
    relation = Relation(IDS, [(1, "a")])
    relation.most = 2
    job = Job(tmp_path, relation, "id")
    relation.now += [(1, name) for name in "bcdefg"]
    job.poll(5)
    assert sorted(row["name"] for row in job.rows()) == list("abcdefg")


def test_a_row_of_a_key_that_changes_back(tmp_path: Path) -> None:
    relation = Relation(IDS, [(1, "a")], ("id",))
    relation.grows = "id"
    job = Job(tmp_path, relation, "id")
    for name in "bab":
        relation.now = [(1, name)]
        job.poll()
    job.poll(2)
    assert [row["name"] for row in job.rows()] == ["a", "b", "a", "b"]


def test_more_rows_than_are_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "MOST_RECOGNISED", 3)
    relation = Relation(IDS, [(1, name) for name in "abcde"])
    job = Job(tmp_path, relation, "id")
    job.poll(2)
    assert len(ids(job)) == 5
    relation.now += [(2, name) for name in "ab"]
    job.poll(2)
    relation.now.append((2, "c"))
    job.poll(2)
    assert sorted(ids(job)) == [1, 1, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int32(), [3, None, -1]),
        (pa.decimal128(9, 2), [Decimal("1.50"), None]),
        (pa.float64(), [0.1, 1e300, -1.0]),
        (pa.date32(), [date(2024, 2, 29)]),
        (
            pa.timestamp("us", tz="UTC"),
            [datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)],
        ),
        (pa.binary(), [b"a", b"ab"]),
    ],
)
def test_every_type_that_grows(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    relation = Relation(pa.schema([("at", kind), ("n", pa.int64())]), [(v, n) for n, v in enumerate(values)])
    relation.order = lambda rows: [[row] for row in rows]
    job = Job(tmp_path, relation, "at")
    job.begin()
    job.poll(2)
    assert sorted(row["n"] for row in job.rows()) == list(range(len(values)))


def test_nothing_follows_nan(tmp_path: Path) -> None:
    relation = Relation(pa.schema([("at", pa.float64())]), [(1.0,), (float("nan"),)])
    with refusal("source.config", "at", why="NaN"):
        Job(tmp_path, relation, "at")


def test_a_kill_between_the_log_and_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relation = Relation(IDS, [(1, "a")], ("id",))
    job = Job(tmp_path, relation)
    relation.now = [(1, "a"), (2, "b")]

    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr("velostream.connectors.databases.polling.replace_file", killed)
        with pytest.raises(KilledError):
            job.poll()
    relation.now = [(1, "a")]
    job.begin()
    job.poll(2)
    assert job.table() == {"1": (1, "a")}


def test_a_row_with_nan_is_not_changed(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.float64()), ("l", pa.list_(pa.float32()))])
    relation = Relation(schema, [(1, float("nan"), [float("nan"), None]), (2, None, None)], ("id",))
    job = Job(tmp_path, relation)
    job.poll(3)
    assert len(job.rows()) == 2
    relation.now[0] = (1, 1.0, [1.0])
    relation.now[1] = (2, float("nan"), [float("nan")])
    job.poll(2)
    assert len(job.rows()) == 4


@pytest.mark.parametrize("grows", [None, "id"])
def test_columns_that_were_altered_while_we_were_away(tmp_path: Path, grows: str | None) -> None:
    relation = Relation(IDS, [(1, "a"), (2, "b")], ("id",))
    job = Job(tmp_path, relation, grows)
    relation.schema = IDS.append(pa.field("more", pa.string()))
    relation.now = [(1, "a", "m"), (2, "b", None), (3, "c", "n")]
    job.begin()
    job.poll(2)
    assert job.table() == {"1": (1, "a", "m"), "2": (2, "b", None), "3": (3, "c", "n")}
    relation.schema = relation.schema.set(0, pa.field("id", pa.decimal128(20, 0)))
    relation.now.append((2**63, "d", None))
    job.begin()
    with refusal("source.config", "id", why="decimal") as retyped:
        job.poll()
    assert "CREATE OR REPLACE" in retyped.value.hint
    relation.schema = pa.schema([("id", pa.int64())])
    job.begin()
    with refusal("source.config", "name", why="dropped") as dropped:
        job.poll()
    assert "CREATE OR REPLACE" in dropped.value.hint


def test_a_type_that_became_wider(tmp_path: Path) -> None:
    relation = Relation(pa.schema([("id", pa.int16())]), [(1,)], ("id",))
    job = Job(tmp_path, relation)
    relation.schema, relation.now = pa.schema([("id", pa.int64())]), [(1,), (2**40,)]
    job.begin()
    job.poll(2)
    assert sorted(job.table()) == ["1", str(2**40)]


def test_a_log_that_is_lost_is_a_gap(tmp_path: Path) -> None:
    """Also where nothing was lost on the server: whoever wants to know of gaps is told of this one."""

    def opened(*, reload: bool) -> DatabaseSource:
        polling = Polling(Relation(IDS, [(1, "a")], ("id",)), tmp_path, timedelta(seconds=1), None)
        return DatabaseSource(polling, SourceContext(tmp_path), reload=reload, follows=True)

    source = opened(reload=False)
    end = source.latest(None)
    source.commit(end)
    source.close()
    for path in tmp_path.iterdir():
        path.unlink()
    source = opened(reload=False)
    with refusal("source.gap"):
        source.latest(end)
    source.close()
    source = opened(reload=True)
    assert source.latest(end)["changes"] > end["changes"]
    source.close()
