"""What is damaged is found, named, and repaired from what is good or refused; never read as if whole."""

from __future__ import annotations

import errno
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from trade_rows import TRADES, commit, trades

from refusals import refusal
from velostream.disk import framing as frames
from velostream.errors import DataDirError, LaggingReaderError
from velostream.model.tables import TableSpec
from velostream.serving.columns.values import KeyCodec
from velostream.serving.durable import snapshots
from velostream.serving.durable.verification import FileState, verify
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import WaitUntil

COMMITS = 6


def history(root: Path, **options: str) -> Path:
    """Six commits, a snapshot after each of the first five; two are kept."""
    with TableStore(root) as store:
        table = store.create(TableSpec("trades", TRADES, ("symbol",), options))
        for number in range(1, COMMITS + 1):
            rows = trades(("A", f"{number}.00", number), (f"k{number}", "1.00", number))
            table.commit_keyed(rows, None, commit(number))
            if number < COMMITS:
                table.checkpoint()
    return root / "trades"


def content(root: Path, *, read_only: bool = True) -> tuple[int, Any, list[Any]]:
    with TableStore(root, read_only=read_only) as store:
        table = store.open("trades")
        return table.version, table.last_commit, table.snapshot().to_pylist()


def flipped(whole: bytes, place: int, rng: random.Random) -> bytes:
    damaged = bytearray(whole)
    damaged[place] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def damages(whole: bytes, rng: random.Random) -> list[bytes]:
    """The file with a bit flipped in each byte, and cut at each byte."""
    return [flipped(whole, place, rng) for place in range(len(whole))] + [
        whole[:size] for size in range(len(whole))
    ]


def test_any_damage_to_a_snapshot_is_found(tmp_path: Path, rng: random.Random) -> None:
    path = max(history(tmp_path).glob("snapshot-*"))
    whole = path.read_bytes()
    assert snapshots.read(path).header["version"] == COMMITS - 1
    for damaged in damages(whole, rng):
        path.write_bytes(damaged)
        with refusal("data_dir.corrupt", path.name):
            snapshots.read(path)


@pytest.mark.parametrize("place", [0, 1])
def test_for_a_damaged_snapshot_the_other_stands_in(
    place: int, tmp_path: Path, rng: random.Random, rounds: Callable[[int, int], int]
) -> None:
    folder = history(tmp_path, **{"changes.keep.versions": "0"})
    expected = content(tmp_path)
    path = sorted(folder.glob("snapshot-*"))[place]
    for damaged in rng.choices(damages(path.read_bytes(), rng), k=rounds(60, 3_000)):
        path.write_bytes(damaged)
        report = verify(folder)
        assert [file.name for file in report.files if file.state is FileState.DAMAGED] == [path.name]
        assert (report.version, report.good) == (COMMITS, False)
        assert content(tmp_path) == expected


def test_any_damage_to_the_log_since_the_newest_snapshot_is_refused(
    tmp_path: Path, rng: random.Random, rounds: Callable[[int, int], int]
) -> None:
    folder = history(tmp_path)
    path = max(folder.glob("log-*"))
    for damaged in rng.choices(damages(path.read_bytes(), rng), k=rounds(100, 3_000)):
        path.write_bytes(damaged)
        with refusal("data_dir.corrupt", path.name):
            content(tmp_path)
        report = verify(folder)
        assert (report.version, report.good) == (None, False)
        assert path.name in (report.problem or "")
        assert report.hint


def test_any_damage_to_the_description_is_refused(tmp_path: Path, rng: random.Random) -> None:
    folder = history(tmp_path)
    path = folder / "table.json"
    for damaged in damages(path.read_bytes(), rng):
        path.write_bytes(damaged)
        with pytest.raises(DataDirError, match=r"table\.json|has format"):
            content(tmp_path)
        assert not verify(folder).good


@pytest.mark.parametrize("name", ["closed.json", "readers.json"])
def test_any_damage_to_what_only_helps_is_found_and_repaired(
    name: str, tmp_path: Path, rng: random.Random
) -> None:
    folder = history(tmp_path)
    with TableStore(tmp_path) as store:
        store.open("trades").register_reader("derived", 3)
    expected = content(tmp_path)
    path = folder / name
    whole = path.read_bytes()
    for damaged in damages(whole, rng):
        path.write_bytes(damaged)
        report = verify(folder)
        assert [file.name for file in report.files if file.state is FileState.DAMAGED] == [name]
        assert content(tmp_path) == expected
    with TableStore(tmp_path) as store:
        store.open("trades").register_reader("derived", 3)
    assert path.read_bytes() == whole
    assert verify(folder).good


def test_a_damaged_snapshot_is_replaced_when_the_table_is_opened(
    tmp_path: Path, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    folder = history(tmp_path, **{"changes.keep.versions": "0"})
    expected = content(tmp_path)
    older, newest = sorted(folder.glob("snapshot-*"))
    newest.write_bytes(newest.read_bytes()[:-70])
    with TableStore(tmp_path) as store:
        assert store.open("trades").version == COMMITS
        wait_until(lambda: max(folder.glob("snapshot-*.frames")) > newest and not newest.exists())
    assert newest.name in caplog.text
    assert verify(folder).good
    # The older one was kept, since it is the only other good one: the new one may fail too.
    (found,) = [path for path in folder.glob("snapshot-*") if path != older]
    found.write_bytes(b"")
    assert content(tmp_path) == expected


@pytest.mark.parametrize("gone", [False, True])
def test_a_snapshot_that_went_bad_is_found_when_the_next_is_written(
    tmp_path: Path, rng: random.Random, caplog: pytest.LogCaptureFixture, gone: bool
) -> None:
    with TableStore(tmp_path) as store:
        table = store.create(TableSpec("trades", TRADES, ("symbol",)))
        for number in range(1, 5):
            table.commit_keyed(
                trades(("A", f"{number}.00", number), (f"k{number}", "1.00", 1)), None, commit(number)
            )
            if number == 4:
                *_, good, bad = sorted((tmp_path / "trades").glob("snapshot-*"))
                whole = bad.read_bytes()
                # Replaced, not changed: rows in memory may be those of the file.
                bad.unlink()
                if not gone:
                    bad.write_bytes(flipped(whole, rng.randrange(len(whole)), rng))
            table.checkpoint()
    expected = content(tmp_path)
    assert bad.name in caplog.text
    newest = max((tmp_path / "trades").glob("snapshot-*"))
    assert sorted((tmp_path / "trades").glob("snapshot-*")) == [good, newest]
    assert verify(tmp_path / "trades").good
    newest.write_bytes(flipped(newest.read_bytes(), 100, rng))
    assert content(tmp_path) == expected


def test_without_a_good_snapshot_the_log_tells_all_or_the_table_is_refused(tmp_path: Path) -> None:
    with TableStore(tmp_path) as store:
        table = store.create(TableSpec("trades", TRADES, ("symbol",)))
        table.commit_keyed(trades(("A", "1.00", 1)), None, commit(1))
        table.checkpoint()
        table.commit_keyed(trades(("B", "1.00", 1)), None, commit(2))
    expected = content(tmp_path)
    (path,) = (tmp_path / "trades").glob("snapshot-*")
    path.write_bytes(path.read_bytes()[:100])
    assert content(tmp_path) == expected
    report = verify(tmp_path / "trades")
    assert (report.version, report.good) == (2, False)

    folder = history(tmp_path / "trimmed", **{"changes.keep.versions": "0"})
    for path in folder.glob("snapshot-*"):
        path.write_bytes(path.read_bytes()[:100])
    with refusal("data_dir.corrupt", why="snapshot-") as raised:
        content(tmp_path / "trimmed")
    assert "copy" in (raised.value.hint or "")


def test_a_damaged_log_that_a_snapshot_covers_costs_followers_a_new_start(tmp_path: Path) -> None:
    folder = history(tmp_path)
    expected = content(tmp_path)
    path = min(folder.glob("log-*"))
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    assert content(tmp_path) == expected
    with TableStore(tmp_path) as store:
        table = store.open("trades")
        with refusal("table.lagging_reader", path.name):
            table.changes_between(0, COMMITS)
        assert table.changes_between(1, COMMITS).num_rows == 15
    report = verify(folder)
    assert (report.version, report.good) == (COMMITS, False)


@pytest.mark.parametrize("gone", [0, 1, 2, 3, 4, 5])
def test_a_missing_log_file_is_never_passed_over(gone: int, tmp_path: Path) -> None:
    folder = history(tmp_path)
    expected = content(tmp_path)
    logs = sorted(folder.glob("log-*"))
    assert len(logs) == COMMITS
    logs[gone].unlink()
    if gone == COMMITS - 1:
        with refusal("data_dir.corrupt", why="log"):
            content(tmp_path)
        return
    assert content(tmp_path) == expected
    with TableStore(tmp_path, read_only=True) as store, pytest.raises(LaggingReaderError):
        store.open("trades").changes_between(0, COMMITS)
    assert verify(folder).good is (gone == 0)


def test_a_disk_that_cannot_be_read_is_told_and_not_survived_by_luck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = history(tmp_path)
    expected = content(tmp_path)
    newest = max(folder.glob("snapshot-*"))
    inode = newest.stat().st_ino
    real = os.pread

    def failing(descriptor: int, size: int, offset: int) -> bytes:
        if os.fstat(descriptor).st_ino == inode:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, size, offset)

    monkeypatch.setattr(frames.os, "pread", failing)
    assert content(tmp_path) == expected
    (found,) = [file for file in verify(folder).files if file.state is FileState.DAMAGED]
    assert (found.name, "input/output error" in (found.detail or "")) == (newest.name, True)


def test_files_of_the_format_before_are_read(tmp_path: Path) -> None:
    """Without checksums in the small files, and without a log file until the first commit."""
    folder = history(tmp_path)
    expected = content(tmp_path)
    data = json.loads((folder / "table.json").read_text())
    for later in ("checksum", "of", "times written", "statement", "job"):
        del data[later]
    (folder / "table.json").write_text(json.dumps({**data, "format": 1}, indent=2))
    (folder / "readers.json").write_text('{"derived": 3}')
    (folder / "closed.json").unlink()
    assert content(tmp_path) == expected
    empty = tmp_path / "empty"
    shutil.copytree(folder, empty / "trades")
    for path in (empty / "trades").glob("*.frames"):
        path.unlink()
    assert content(empty) == (0, None, [])
    with TableStore(empty) as store:
        store.open("trades").evolve(TRADES.append(pa.field("note", pa.string())))
    assert content(empty) == (0, None, [])
    assert json.loads((empty / "trades" / "table.json").read_text())["format"] == 3
    (folder / "table.json").write_text(json.dumps({**data, "format": 4}, indent=2))
    with refusal("data_dir", "format 4"):
        content(tmp_path)


def test_snapshots_that_lead_to_different_rows_are_found(tmp_path: Path) -> None:
    folder = history(tmp_path / "one")
    other = tmp_path / "two"
    with TableStore(other) as store:
        store.create(TableSpec("trades", TRADES, ("symbol",)))
    shutil.copy(folder / "table.json", other / "trades")
    (other / "trades" / "closed.json").unlink()
    with TableStore(other) as store:
        table = store.open("trades")
        for number in range(1, COMMITS):
            rows = trades(("A", f"{number}.00", number), (f"k{number}", "1.50", number))
            table.commit_keyed(rows, None, commit(number))
            table.checkpoint()
    newest = max(folder.glob("snapshot-*"))
    shutil.copy(other / "trades" / newest.name, newest)
    report = verify(folder)
    assert (report.version, report.good) == (None, False)
    assert "do not lead" in (report.problem or "")


def test_sql_is_answered_before_keys_are_indexed_and_keys_are_indexed_in_small_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = trades(*((f"k{number}", "1.00", number) for number in range(70_000)))
    with TableStore(tmp_path) as store:
        table = store.create(TableSpec("trades", TRADES, ("symbol",)))
        table.commit_keyed(rows, None, commit(1))
        table.checkpoint()
    steps: list[int] = []
    real = KeyCodec.encode_columns

    def encode(codec: KeyCodec, batch: Any) -> Any:
        steps.append(batch.num_rows)
        return real(codec, batch)

    monkeypatch.setattr(KeyCodec, "encode_columns", encode)
    with TableStore(tmp_path) as store:
        table = store.open("trades")
        assert table.scalar("SUM(volume)", "volume < 3") == 3
        assert len(table) == 70_000
        assert steps == []
        row = table.get("k69999")
        assert row is not None
        assert row.volume == 69_999
    assert sum(steps) == 70_000
    assert max(steps) <= 20_000


def test_an_unfinished_record_and_files_left_aside_are_no_damage(tmp_path: Path) -> None:
    folder = history(tmp_path)
    path = max(folder.glob("log-*"))
    path.write_bytes(path.read_bytes() + b"VLF1 half")
    (folder / "snapshot-0000000000000009.new").write_bytes(b"half")
    report = verify(folder)
    states = {file.name: file.state for file in report.files}
    assert report.good
    assert states[path.name] is FileState.UNFINISHED
    assert states["snapshot-0000000000000009.new"] is FileState.LEFT_OVER
    assert content(tmp_path, read_only=False)[0] == COMMITS
    assert {file.state for file in verify(folder).files} == {FileState.GOOD}


@pytest.mark.parametrize("count", [0, 1])
def test_an_empty_table_is_verified(count: int, tmp_path: Path) -> None:
    with TableStore(tmp_path) as store:
        table = store.create(TableSpec("trades", TRADES))
        for number in range(count):
            table.commit_rows(TRADES.empty_table(), None, commit(number))
            table.checkpoint()
    report = verify(tmp_path / "trades")
    assert (report.good, report.version, report.rows) == (True, 0, 0)


def test_values_that_do_not_equal_themselves_are_verified(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("x", pa.float64()), pa.field("l", pa.list_(pa.float64()))])
    nan = float("nan")
    with TableStore(tmp_path) as store:
        table = store.create(TableSpec("t", schema))
        for number in range(1, 4):
            rows = pa.table({"x": [nan, None, 1.0], "l": [[nan], None, [1.0, None]]}, schema=schema)
            table.commit_rows(rows, None, commit(number))
            table.checkpoint()
    assert verify(tmp_path / "t").good
