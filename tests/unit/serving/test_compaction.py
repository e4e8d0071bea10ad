"""Snapshots are written while commits go on, and a crash at any step of either loses nothing."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from trade_rows import TRADES, commit, trades

from refusals import refusal
from velostream.errors import StorageError
from velostream.model.tables import TableSpec
from velostream.serving.columns.dictionaries import Dictionaries
from velostream.serving.durable import log, snapshots
from velostream.serving.durable import table_files as journal
from velostream.serving.durable.verification import verify
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from tests.conftest import WaitUntil

    from velostream.serving.contract.table import Table

SMALL = {"changes.keep.versions": "0", "changes.keep.bytes": "0"}


def upsert(table: Table, number: int) -> None:
    rows = trades(("A", f"{number}.00", number), (f"k{number % 7}", "1.00", number))
    table.commit_keyed(rows, None, commit(number))


def state(table: Table) -> tuple[int, Counter[Any]]:
    last = table.last_commit
    rows = Counter(tuple(row.values()) for row in table.snapshot().to_pylist())
    return (last.batch if last else 0), rows


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every commit calls for a snapshot."""
    monkeypatch.setattr(journal, "SNAPSHOT_BYTES", 0)
    monkeypatch.setattr(journal, "OVERRUN", 10**9)


class Gate:
    """Stops the writing of snapshots until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        real = snapshots.write

        def gated(folder: Path, header: Any, views: Any, stopped: Callable[[], bool]) -> Path:
            self.reached.set()
            while not self.open.wait(0.01):
                if stopped():
                    raise snapshots.StoppedError
            return real(folder, header, views, stopped)

        monkeypatch.setattr(snapshots, "write", gated)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.open.set()


def test_commits_go_on_while_a_snapshot_is_written(
    tmp_path: Path, eager: None, gate: Gate, wait_until: WaitUntil
) -> None:
    with TableStore(tmp_path) as store:
        table = store.create(TableSpec("trades", TRADES, ("symbol",), SMALL))
        upsert(table, 1)
        assert gate.reached.wait(10)
        for number in range(2, 20):
            upsert(table, number)
        assert not list((tmp_path / "trades").glob("snapshot-*"))
        report = state(table)
        gate.open.set()
        wait_until(lambda: list((tmp_path / "trades").glob("snapshot-0000000000000001.frames")))
        upsert(table, 20)
        wait_until(lambda: list((tmp_path / "trades").glob("snapshot-0000000000000020.frames")))
    assert report[0] == 19
    assert verify(tmp_path / "trades").good
    with TableStore(tmp_path, read_only=True) as store:
        assert state(store.open("trades"))[0] == 20


def test_the_writer_waits_only_where_the_log_outgrows_all_bounds(
    tmp_path: Path, eager: None, gate: Gate, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    monkeypatch.setattr(journal, "OVERRUN", 1000)
    outgrown = threading.Event()
    real = journal.Journal.overrun

    def overrun(of: journal.Journal, nbytes: int) -> bool:
        found = real(of, nbytes)
        if found:
            outgrown.set()
        return found

    monkeypatch.setattr(journal.Journal, "overrun", overrun)
    with TableStore(tmp_path) as store:
        table = store.create(TableSpec("trades", TRADES, ("symbol",), SMALL))
        done = threading.Event()

        def work() -> None:
            for number in range(1, 100):
                upsert(table, number)
            done.set()

        thread = threading.Thread(target=work)
        thread.start()
        assert outgrown.wait(10)
        waiting_at = table.version
        thread.join(0.3)
        assert not done.is_set()
        assert 1 < table.version == waiting_at < 99
        # Readers do not wait.
        assert table.get("A") is not None
        gate.open.set()
        thread.join(30)
        assert done.is_set()
        assert table.version == 99


@pytest.mark.parametrize("dropped", [True, False])
def test_closing_waits_for_a_snapshot_and_dropping_gives_it_up(
    dropped: bool, tmp_path: Path, eager: None, gate: Gate
) -> None:
    store = TableStore(tmp_path)
    table = store.create(TableSpec("trades", TRADES, ("symbol",), SMALL))
    upsert(table, 1)
    assert gate.reached.wait(10)
    if dropped:
        store.drop("trades")
        assert list(tmp_path.iterdir()) == []
        store.close()
        return
    closing = threading.Thread(target=store.close)
    closing.start()
    gate.open.set()
    closing.join(30)
    assert not closing.is_alive()
    assert [path.name for path in (tmp_path / "trades").glob("snapshot-*")] == [
        "snapshot-0000000000000001.frames"
    ]


def test_a_schema_may_widen_while_a_snapshot_is_written(tmp_path: Path, eager: None, gate: Gate) -> None:
    import pyarrow as pa

    with TableStore(tmp_path) as store:
        table = store.create(TableSpec("trades", TRADES, ("symbol",), SMALL))
        upsert(table, 1)
        assert gate.reached.wait(10)
        table.evolve(TRADES.append(pa.field("note", pa.string())))
        upsert(table, 2)
        gate.open.set()
    report = verify(tmp_path / "trades")
    assert (report.good, report.version) == (True, 2)
    with TableStore(tmp_path, read_only=True) as store:
        assert store.open("trades").get("A").note is None


def test_files_are_verified_while_commits_go_on(tmp_path: Path, eager: None) -> None:
    with TableStore(tmp_path) as store:
        table = store.create(TableSpec("trades", TRADES, ("symbol",), SMALL))
        stop = threading.Event()

        def work() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                upsert(table, number)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            reports = []
            while len(reports) < 20:
                before = table.version
                reports.append((before, store.verify("trades"), table.version))
        finally:
            stop.set()
            thread.join()
    for before, report, after in reports:
        assert report.good, report
        assert before <= report.version <= after
    assert reports[-1][2] > reports[0][0]


def test_disk_use_follows_the_table_and_not_its_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SNAPSHOT_BYTES", 2_000_000)
    with TableStore(tmp_path) as store:
        table = store.create(TableSpec("trades", TRADES, ("symbol",), SMALL))
        most = records = 0
        for number in range(1, 1001):
            if number % 3:
                upsert(table, number)
            else:
                # Only the source's position moves: such records cost a recovery just as well.
                table.commit_keyed(None, None, commit(number))
            most = max(most, table.stats().disk_bytes)
            records = max(records, len(list((tmp_path / "trades").glob("log-*"))))
        assert table.last_commit == commit(1000)
    # 2,000,000 is reached by 60 records of 1,500 bytes: the log since the older of two snapshots.
    assert most < 4 * 60 * 1500
    assert records <= 5
    kept = journal.Journal(tmp_path / "trades", read_only=True)
    assert kept.recover(Dictionaries(kept.spec)).weight <= 2_100_000
    with TableStore(tmp_path, read_only=True) as store:
        assert state(store.open("trades"))[0] == 1000


def test_snapshots_that_fail_are_not_tried_at_every_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SNAPSHOT_BYTES", 1_000_000)
    tried: list[int] = []

    def failing(folder: Path, header: Any, *_: object) -> None:
        tried.append(header["seq"])
        raise StorageError("the snapshot cannot be written")

    monkeypatch.setattr(snapshots, "write", failing)
    with TableStore(tmp_path) as store:
        table = store.create(TableSpec("trades", TRADES, ("symbol",), SMALL))
        for number in range(1, 201):
            upsert(table, number)
        assert table.last_commit == commit(200)
        with refusal("data_dir.storage", "snapshot"):
            table.checkpoint()
    # Due after 29 records, then after each quarter of that.
    assert 5 <= len(tried) <= 30


@contextmanager
def full_after(allowed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A disk that takes so many bytes more."""
    left = [allowed]
    write, writev = os.write, os.writev

    def refuse() -> OSError:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def limited(descriptor: int, data: Any) -> int:
        if left[0] <= 0:
            raise refuse()
        written = write(descriptor, memoryview(data)[: left[0]])
        left[0] -= written
        return written

    def limited_many(descriptor: int, parts: Any) -> int:
        return limited(descriptor, b"".join(parts))

    with monkeypatch.context() as patched:
        patched.setattr(log.os, "write", limited)
        patched.setattr(log.os, "writev", limited_many)
        yield
    assert writev is os.writev


@pytest.mark.parametrize("allowed", [0, 1, 700, 1500, 3000, 5000, 8000])
def test_a_disk_that_fills_up_at_any_moment_loses_nothing(
    allowed: int, tmp_path: Path, eager: None, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    folder = tmp_path / "trades"
    with TableStore(tmp_path) as store:
        table = store.create(TableSpec("trades", TRADES, ("symbol",), SMALL))
        for number in range(1, 4):
            upsert(table, number)
        acknowledged = 3
        with full_after(allowed, monkeypatch):
            for number in range(4, 10):
                try:
                    upsert(table, number)
                except StorageError:
                    break
                acknowledged = number
            assert table.last_commit == commit(acknowledged)
            for thread in threading.enumerate():
                if thread.name == "table-snapshot":
                    thread.join(60)
            assert not list(folder.glob("*.new")), "what was written in vain still takes room"
            shutil.copytree(folder, tmp_path / "copies" / "trades")
        upsert(table, acknowledged + 1)
    for root, last in ((tmp_path / "copies", acknowledged), (tmp_path, acknowledged + 1)):
        assert verify(root / "trades").good
        with TableStore(root) as store:
            assert store.open("trades").last_commit == commit(last)


class Images:
    """Copies the folder before every call that changes something on the disk, as a crash there leaves it."""

    STEPS = (
        (os, ("write", "writev", "fsync", "fdatasync", "ftruncate", "truncate")),
        (Path, ("rename", "unlink", "touch")),
    )

    def __init__(self, folder: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._images = images
        self._lock = threading.RLock()
        self._inside = False
        self.taken: list[tuple[Path, str, int]] = []
        self.acknowledged = 0
        for owner, names in self.STEPS:
            for name in names:
                monkeypatch.setattr(owner, name, self._watched(name, getattr(owner, name)))

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                if self._inside or not self._folder.is_dir():
                    return real(*arguments, **named)
                self._inside = True
                try:
                    image = self._images / str(len(self.taken)) / self._folder.name
                    shutil.copytree(self._folder, image)
                    self.taken.append((image, name, self.acknowledged))
                finally:
                    self._inside = False
                return real(*arguments, **named)

        return call


@pytest.mark.parametrize("key", [("symbol",), ()])
def test_a_crash_at_any_step_of_commits_and_snapshots_loses_nothing(
    key: tuple[str, ...], tmp_path: Path, eager: None, rng: random.Random
) -> None:
    expected: dict[int, Counter[Any]] = {0: Counter()}
    root = tmp_path / "tables"
    with pytest.MonkeyPatch.context() as patched:
        images = Images(root / "trades", tmp_path / "images", patched)
        with TableStore(root) as store:
            table = store.create(TableSpec("trades", TRADES, key, SMALL))
            for number in range(1, 9):
                rows = trades(*((f"k{rng.randrange(5)}", "1.00", number) for _ in range(3)))
                if key:
                    table.commit_keyed(rows, None, commit(number))
                else:
                    table.commit_rows(rows, None, commit(number))
                images.acknowledged = number
                expected[number] = state(table)[1]
    steps = Counter(name for _, name, _ in images.taken)
    assert {"write", "writev", "fsync", "fdatasync", "rename", "unlink", "touch"} <= set(steps)
    for image, step, acknowledged in images.taken:
        report = verify(image)
        assert report.good, (step, report)
        for read_only in (True, False):
            with TableStore(image.parent, read_only=read_only) as store:
                number, rows = state(store.open("trades"))
            assert number in (acknowledged, acknowledged + 1), step
            assert rows == expected[number], step


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_random_histories_with_damage_and_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random, rounds: Callable[[int, int], int]
) -> None:
    """Whatever happens to snapshots and to the unfinished end, the table is what was acknowledged."""
    for number in range(rounds(15, 200)):
        monkeypatch.setattr(journal, "SNAPSHOT_BYTES", rng.choice([0, 50_000, 200_000]))
        root = tmp_path / str(number)
        key = rng.choice([("symbol",), ()])
        model: dict[str, tuple[Any, ...]] | Counter[Any] = {} if key else Counter()
        batch = 0
        with TableStore(root) as store:
            store.create(TableSpec("trades", TRADES, key, rng.choice([SMALL, {}])))
        for _ in range(rng.randint(1, 6)):
            with TableStore(root) as store:
                table = store.open("trades")
                assert state(table) == (batch, _rows(model))
                for _ in range(rng.randint(0, 12)):
                    batch += 1
                    _random_commit(table, model, batch, rng)
                if rng.random() < 0.3:
                    table.checkpoint()
            assert verify(root / "trades").good
            _harm(root / "trades", rng)
        with TableStore(root, read_only=True) as store:
            assert state(store.open("trades")) == (batch, _rows(model))
        shutil.rmtree(root)


def _rows(model: dict[str, tuple[Any, ...]] | Counter[Any]) -> Counter[Any]:
    return +model if isinstance(model, Counter) else Counter(model.values())


def _random_commit(
    table: Table, model: dict[str, tuple[Any, ...]] | Counter[Any], batch: int, rng: random.Random
) -> None:
    import pyarrow as pa

    given = trades(*((f"k{rng.randrange(9)}", "1.00", rng.randrange(3)) for _ in range(rng.randint(0, 4))))
    rows = [tuple(row.values()) for row in given.to_pylist()]
    if not isinstance(model, Counter):
        gone = rng.sample(sorted(model), min(len(model), rng.randint(0, 2)))
        deletes = pa.table({"symbol": pa.array(gone, pa.string())})
        table.commit_keyed(given, deletes, commit(batch))
        for name in gone:
            del model[name]
        model.update({row[0]: row for row in rows})
        return
    present = sorted((+model).elements())
    taken = rng.sample(present, min(len(present), rng.randint(0, 3)))
    weights = [1] * len(rows) + [-1] * len(taken)
    columns = list(zip(*(rows + taken), strict=True)) or [(), (), ()]
    both = pa.table([pa.array(c, f.type) for c, f in zip(columns, TRADES, strict=True)], schema=TRADES)
    table.commit_rows(both, pa.array(weights, pa.int64()), commit(batch))
    model.update(rows)
    model.subtract(taken)


def _harm(folder: Path, rng: random.Random) -> None:
    """Something that a table must survive."""
    logs = sorted(folder.glob("log-*"))
    kept = sorted(folder.glob("snapshot-*"))
    harm = rng.choice(["nothing", "torn", "aside", "snapshot", "readers", "closed"])
    if harm == "torn":
        with logs[-1].open("ab") as file:
            file.write(rng.choice([b"VLF1", b"\0" * 700, b"V"]))
    elif harm == "aside":
        (folder / "snapshot-0000000000000077.new").write_bytes(b"VLF1")
    elif harm == "snapshot" and (len(kept) > 1 or "log-0000000000000001-" in logs[0].name):
        # Opening finds out about the newest, and replaces it; an older one is found by verifying alone.
        for path in kept[-1:]:
            whole = path.read_bytes()
            path.write_bytes(rng.choice([whole[: rng.randrange(len(whole))], b"", whole[:-1] + b"!"]))
    elif harm in ("readers", "closed"):
        (folder / f"{harm}.json").write_bytes(b'{"seq": 1')
