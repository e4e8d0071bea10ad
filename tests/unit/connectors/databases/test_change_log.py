"""The log of changes: what was written as a whole can be read again, whatever happens in between."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from velostream.connectors.databases import change_log
from velostream.connectors.databases.change_log import ChangeLog, SetAside
from velostream.errors import CorruptDataError, LaggingReaderError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"n": pa.array(range(first, first + count), pa.int64())})


def opened(folder: Path) -> ChangeLog:
    log = ChangeLog(folder, "job")
    log.open()
    return log


def read(log: ChangeLog, start: int | None, end: int) -> list[int]:
    return [n for _, batch in log.between(start, end) for n in batch["n"].to_pylist()]


def test_a_transaction_is_seen_when_it_is_whole(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.begin_load(0)
    assert log.position is None
    log.append(rows(0, 3), whole=False)
    assert (log.end, log.written) == (0, 3)
    log.append(rows(3, 2), {"at": 1}, whole=True)
    assert (log.end, log.position) == (5, {"at": 1})
    log.append(rows(5, 4), whole=False)
    assert read(log, None, log.end) == [0, 1, 2, 3, 4]
    assert read(log, 2, 4) == [2, 3]


def test_what_is_not_whole_is_cut_off_by_a_crash(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.begin_load(0)
    log.append(rows(0, 3), {"at": 1}, whole=True)
    log.append(rows(3, 2), whole=False)
    log = opened(tmp_path)
    assert (log.end, log.written, log.position) == (3, 3, {"at": 1})
    log.append(rows(3, 1), {"at": 2}, whole=True)
    log = opened(tmp_path)
    assert read(log, None, log.end) == [0, 1, 2, 3]


def test_a_load_that_did_not_end_leaves_nothing(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.begin_load(0)
    log.append(rows(0, 3), whole=False)
    log = opened(tmp_path)
    assert log.position is None
    assert not list(tmp_path.iterdir())


def test_a_second_load_takes_the_place_of_the_first(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.begin_load(0)
    log.append(rows(0, 3), {"at": 1}, whole=True)
    log.begin_load(3)
    log.append(rows(100, 2), whole=False)
    # A step that was begun before is still there.
    assert read(log, None, 3) == [0, 1, 2]
    log.append(rows(102, 1), {"at": 2}, whole=True)
    assert read(log, None, log.end) == [100, 101, 102]
    with pytest.raises(LaggingReaderError):
        read(log, 3, log.end)
    log = opened(tmp_path)
    assert read(log, None, log.end) == [100, 101, 102]
    assert log.step(3, 1) == log.end


def test_a_load_of_nothing_is_noticed(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.begin_load(0)
    log.append(rows(0, 3), {"at": 1}, whole=True)
    log.begin_load(3)
    log.append(rows(0, 0), {"at": 2}, whole=True)
    assert log.step(3, None) == log.end > 3
    assert read(log, None, log.end) == []
    with pytest.raises(LaggingReaderError):
        read(log, 3, log.end)
    log.append(rows(7, 1), {"at": 3}, whole=True)
    assert read(log, None, log.end) == [7]


def test_a_second_load_that_is_given_up_changes_nothing(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.begin_load(0)
    log.append(rows(0, 3), {"at": 1}, whole=True)
    log.begin_load(3)
    log.append(rows(100, 2), whole=False)
    log.abandon()
    log.append(rows(3, 1), {"at": 2}, whole=True)
    assert read(log, None, log.end) == [0, 1, 2, 3]


def test_steps_do_not_divide_transactions_but_a_first_load(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.begin_load(0)
    log.append(rows(0, 10), whole=False, divisible=True)
    log.append(rows(0, 0), {"at": 0}, whole=True, divisible=True)
    assert [log.step(after, 4) for after in (0, 4, 8)] == [4, 8, 10]
    for number in range(3):
        log.append(rows(number, 3), {"at": number}, whole=True)
    assert log.step(10, 1) == 13
    assert log.step(10, 7) == 16
    assert log.step(10, None) == 19
    assert log.step(19, 5) == 19


def test_rows_that_are_set_aside_belong_to_their_range(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.begin_load(0)
    log.append(rows(0, 3), {"at": 1}, whole=True, aside=[SetAside(2, "why", "{}")])
    log.append(rows(3, 3), {"at": 2}, whole=True)
    assert [row.number for row in log.aside(None, 6)] == [2]
    assert log.aside(3, 6) == []
    assert [row.reason for row in opened(tmp_path).aside(0, 2)] == ["why"]


def test_what_is_committed_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "FILE_BYTES", 1000)
    log = opened(tmp_path)
    log.begin_load(0)
    for number in range(20):
        log.append(rows(number * 10, 10), {"at": number}, whole=True)
    before = len(list(tmp_path.iterdir()))
    log.forget(150)
    assert len(list(tmp_path.iterdir())) < before
    assert read(log, 150, 200) == list(range(150, 200))
    log.forget(200)
    assert opened(tmp_path).position == {"at": 19}


def test_damage_is_told(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.begin_load(0)
    log.append(rows(0, 300), {"at": 1}, whole=True)
    log.append(rows(0, 300), {"at": 2}, whole=True)
    log.close()
    (path,) = tmp_path.iterdir()
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff\xff")
    with pytest.raises(CorruptDataError):
        opened(tmp_path)


def test_a_log_of_another_job_is_not_taken(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path, "other")
    log.begin_load(0)
    log.append(rows(0, 3), {"at": 1}, whole=True)
    with pytest.raises(CorruptDataError):
        opened(tmp_path)


def test_any_order_of_events(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random transactions, loads, crashes, torn files and commits, beside a list of what must be there."""
    monkeypatch.setattr(change_log, "FILE_BYTES", 3000)
    log = opened(tmp_path)
    log.begin_load(0)
    log.append(rows(0, 0), {"at": 0}, whole=True)
    base, whole, pending, committed = 0, list[int](), list[int](), 0
    for number in range(1, 400):
        event = rng.choice(
            ["part", "part", "end", "end", "end", "crash", "torn", "load", "commit", "abandon"]
        )
        made = [number * 1000 + each for each in range(rng.randint(0, 30))]
        table = pa.table({"n": pa.array(made, pa.int64())})
        if event == "part":
            log.append(table, whole=False)
            pending += made
        elif event == "end":
            log.append(table, {"at": number}, whole=True)
            whole, pending = whole + pending + made, []
        elif event == "load":
            log.begin_load(log.end)
            log.append(table, {"at": number}, whole=True)
            whole, pending, base = made, [], log.end - len(made)
            committed = max(committed, base)
        elif event == "commit":
            committed = log.end
            log.forget(committed)
        else:
            if event == "torn":
                newest = max(tmp_path.iterdir(), key=lambda path: path.name)
                log.close()
                if log.written > log.end:
                    os.truncate(newest, newest.stat().st_size - rng.randint(1, 40))
            if event == "abandon":
                log.abandon()
            else:
                log.close()
                log = opened(tmp_path)
            pending = []
        assert log.end == base + len(whole)
        start = rng.randint(committed, log.end)
        assert read(log, start, log.end) == whole[start - base :]


def test_every_file_of_a_transaction_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "FILE_BYTES", 100)
    synced: dict[str, int] = {}
    fdatasync = os.fdatasync

    def recorded(descriptor: int) -> None:
        fdatasync(descriptor)
        synced[str(Path(f"/proc/self/fd/{descriptor}").readlink())] = os.fstat(descriptor).st_size

    monkeypatch.setattr(os, "fdatasync", recorded)
    log = opened(tmp_path)
    log.begin_load(0)
    for number in range(5):
        log.append(rows(number * 100, 100), {"at": 1} if number == 4 else None, whole=number == 4)
    there = {str(path): path.stat().st_size for path in tmp_path.iterdir()}
    assert len(there) > 2
    assert synced == there


class Died(BaseException):
    """The process ends here."""


def test_a_crash_while_files_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a transaction that is given up, or of what is committed: whatever was deleted, the rest is whole."""
    monkeypatch.setattr(change_log, "FILE_BYTES", 100)
    for survived in range(12):
        folder = tmp_path / str(survived)
        folder.mkdir()
        log = opened(folder)
        log.begin_load(0)
        for number in range(4):
            log.append(rows(number * 100, 100), {"at": number}, whole=True)
        for number in range(4, 8):
            log.append(rows(number * 100, 100), whole=False)
        left = iter([*[None] * survived, Died])
        with monkeypatch.context() as patched:
            for name in ("truncate", "unlink"):
                patched.setattr(os, name, _dying(getattr(os, name), left))
            try:
                log.abandon()
                log.forget(300)
            except Died:
                pass
        again = opened(folder)
        assert (again.end, again.position) == (400, {"at": 3})
        assert read(again, 300, 400) == list(range(300, 400))


def _dying(real: Callable[..., None], left: Iterator[type[Died] | None]) -> Callable[..., None]:
    def act(*given: Any, **more: Any) -> None:
        if (death := next(left, None)) is not None:
            raise death
        real(*given, **more)

    return act
