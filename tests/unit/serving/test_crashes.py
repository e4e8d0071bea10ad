"""Nothing acknowledged is lost and nothing is there twice, whenever the process dies."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from trade_rows import TRADES, commit, trades

from refusals import refusal
from velostream.errors import StorageError
from velostream.model.tables import TableSpec
from velostream.serving.durable import log
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.conftest import WaitUntil


def filled(folder: Path, *, commits: int = 3, closed: bool = False) -> Path:
    """A table as a crash leaves it, or one that was closed in good order."""
    with TableStore(folder) as store:
        table = store.create(TableSpec("trades", TRADES, ("symbol",)))
        for number in range(1, commits + 1):
            rows = trades(("A", f"{number}.00", number), (f"k{number}", "1.00", number))
            table.commit_keyed(rows, None, commit(number))
    if not closed:
        (folder / "trades" / "closed.json").unlink()
    return folder / "trades"


def only_log(folder: Path) -> Path:
    (path,) = folder.glob("log-*")
    return path


def test_a_log_cut_at_any_byte_of_its_last_record_recovers_to_the_version_before(tmp_path: Path) -> None:
    folder = filled(tmp_path / "tables", commits=2)
    whole = only_log(folder).read_bytes()
    shorter = len(whole)
    folder = filled(tmp_path / "more", commits=3)
    path = only_log(folder)
    whole = path.read_bytes()
    assert len(whole) > shorter
    for size in range(shorter, len(whole)):
        path.write_bytes(whole[:size])
        with TableStore(tmp_path / "more", read_only=True) as store:
            table = store.open("trades")
            assert (table.version, table.last_commit, len(table)) == (2, commit(2), 3)
        assert path.stat().st_size == size, "a read-only store must not write"
    for size in (shorter, shorter + 1, shorter + 30, len(whole) - 1):
        path.write_bytes(whole[:size])
        with TableStore(tmp_path / "more") as store:
            assert store.open("trades").version == 2
            assert path.stat().st_size == shorter
            store.open("trades").commit_keyed(trades(("Z", "9.00", 9)), None, commit(3))
        with TableStore(tmp_path / "more") as store:
            assert store.open("trades").version == 3
        (folder / "closed.json").unlink()


def test_a_log_cut_after_the_table_was_closed_is_refused_at_every_byte(tmp_path: Path) -> None:
    folder = filled(tmp_path / "tables", commits=1, closed=True)
    path = only_log(folder)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with TableStore(tmp_path / "tables") as store, refusal("data_dir.corrupt", path.name):
            store.open("trades")
        assert path.stat().st_size == size, "damaged data must be left as it is"
    path.unlink()
    with TableStore(tmp_path / "tables") as store, refusal("data_dir.corrupt", "trades", why="missing"):
        store.open("trades")


def test_blocks_that_were_never_written_count_as_cut_off(tmp_path: Path) -> None:
    folder = filled(tmp_path / "tables")
    path = only_log(folder)
    path.write_bytes(path.read_bytes() + b"\0" * 4096)
    with TableStore(tmp_path / "tables") as store:
        assert store.open("trades").version == 3


def test_a_bit_flipped_in_any_byte_of_a_log_is_found_and_named(tmp_path: Path, rng: random.Random) -> None:
    folder = filled(tmp_path / "tables", commits=1)
    path = only_log(folder)
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with TableStore(tmp_path / "tables") as store, refusal("data_dir.corrupt", path.name):
            store.open("trades")
        assert path.read_bytes() == damaged, "damaged data must be left as it is"


def test_a_missing_log_file_is_noticed(tmp_path: Path) -> None:
    root = tmp_path / "tables"
    folder = filled(root)
    with TableStore(root) as store:
        store.open("trades").checkpoint()
        store.open("trades").commit_keyed(trades(("B", "1.00", 1)), None, commit(4))
    for path in folder.glob("snapshot-*"):
        path.unlink()
    first = min(folder.glob("log-*"))
    first.unlink()
    with TableStore(root) as store, refusal("data_dir.corrupt", "record 1", why="missing"):
        store.open("trades")


def test_an_interrupted_create_or_drop_leaves_nothing(tmp_path: Path) -> None:
    root = tmp_path / "tables"
    filled(root)
    shutil.copytree(root / "trades", root / ".new-other")
    shutil.copytree(root / "trades", root / ".dropped-other")
    with TableStore(root, read_only=True) as store:
        assert store.names() == ["trades"]
    with TableStore(root) as store:
        assert store.names() == ["trades"]
        store.create(TableSpec("other", TRADES))
    assert sorted(path.name for path in root.iterdir()) == ["other", "trades"]


@pytest.mark.parametrize("written", [0, 1, 23, 24, 100, 400])
def test_a_full_disk_keeps_nothing_of_the_commit(
    written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "tables"
    with TableStore(root) as store:
        table = store.create(TableSpec("trades", TRADES, ("symbol",)))
        table.commit_keyed(trades(("A", "1.00", 1)), None, commit(1))
        path = only_log(root / "trades")
        size = path.stat().st_size
        real = os.writev

        def full(descriptor: int, parts: list[memoryview]) -> int:
            if path.stat().st_size > size or not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(descriptor, [b"".join(parts)[:written]])

        with monkeypatch.context() as patched:
            patched.setattr(log.os, "writev", full)
            with refusal("data_dir.storage", path.name):
                table.commit_keyed(trades(("A", "2.00", 2)), None, commit(2))
        assert path.stat().st_size == size
        assert (table.version, table.last_commit, table.get("A")) == (
            1,
            commit(1),
            ("A", trades(("A", "1.00", 1))["price"][0].as_py(), 1),
        )
        assert table.commit_keyed(trades(("A", "3.00", 3)), None, commit(2)) == 2
    with TableStore(root) as store:
        assert (store.open("trades").version, store.open("trades").last_commit) == (2, commit(2))


def test_a_failing_sync_keeps_nothing_of_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "tables"
    with TableStore(root) as store:
        table = store.create(TableSpec("trades", TRADES))
        table.commit_rows(trades(("A", "1.00", 1)), None, commit(1))

        def failing(descriptor: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patched:
            patched.setattr(log.os, "fdatasync", failing)
            with pytest.raises(StorageError):
                table.commit_rows(trades(("B", "1.00", 1)), None, commit(2))
        table.commit_rows(trades(("C", "1.00", 1)), None, commit(2))
    with TableStore(root) as store:
        assert store.open("trades").snapshot().column("symbol").to_pylist() == ["A", "C"]


def test_a_snapshot_that_cannot_be_written_does_not_fail_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    monkeypatch.setattr("velostream.serving.durable.table_files.SNAPSHOT_BYTES", 0)

    def failing(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with TableStore(tmp_path / "tables") as store:
        table = store.create(TableSpec("trades", TRADES, ("symbol",)))
        with monkeypatch.context() as patched:
            patched.setattr("velostream.serving.durable.snapshots.write", failing)
            for number in range(1, 30):
                table.commit_keyed(trades(("A", f"{number}.00", number)), None, commit(number))
        assert table.version == 29
        table.commit_keyed(trades(("B", "1.00", 1)), None, commit(30))
        wait_until(lambda: list((tmp_path / "tables" / "trades").glob("snapshot-*.frames")))


def test_a_commit_that_is_durable_but_not_applied_stops_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise MemoryError

    root = tmp_path / "tables"
    with TableStore(root) as store:
        table = store.create(TableSpec("trades", TRADES, ("symbol",)))
        table.commit_keyed(trades(("A", "1.00", 1)), None, commit(1))
        with monkeypatch.context() as patched:
            patched.setattr("velostream.serving.memory.writer.make_views", failing)
            with pytest.raises(MemoryError):
                table.commit_keyed(trades(("B", "1.00", 1)), None, commit(2))
        with refusal("internal", "trades"):
            table.commit_keyed(trades(("C", "1.00", 1)), None, commit(3))
        assert table.last_commit == commit(1)
    with TableStore(root) as store:
        assert (len(store.open("trades")), store.open("trades").last_commit) == (2, commit(2))


def test_read_only_stores_write_nothing(tmp_path: Path) -> None:
    root = tmp_path / "tables"
    folder = filled(root)
    path = only_log(folder)
    path.write_bytes(path.read_bytes()[:-5])
    before = {each: each.read_bytes() for each in root.rglob("*") if each.is_file()}
    with TableStore(root, read_only=True) as store:
        table = store.open("trades")
        assert table.get("A") is not None
        for write in (
            lambda: table.commit_keyed(trades(("A", "1.00", 1)), None, commit(9)),
            lambda: table.insert({"symbol": "B"}),
            lambda: table.checkpoint(),
            lambda: store.create(TableSpec("x", TRADES)),
            lambda: store.drop("trades"),
        ):
            with refusal("table", why="read-only"):
                write()
    assert {each: each.read_bytes() for each in root.rglob("*") if each.is_file()} == before
    with TableStore(tmp_path / "absent", read_only=True) as store:
        assert store.names() == []
    assert not (tmp_path / "absent").exists()
