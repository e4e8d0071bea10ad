"""A disk without room, for real: refusals name file, cause and remedy; nothing is lost or half made."""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest

from refusals import refusal
from velostream.disk.full_disk import storing, unkept, unkept_by_java
from velostream.errors import ClosedError, StorageError
from velostream.runtime.instance import open_instance

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROOM = [0, 1, 1 << 12, 1 << 13, 3 << 12, 1 << 14, 1 << 15, 1 << 16]


@pytest.mark.parametrize("room", ROOM)
def test_tables_by_hand(small_disk, room: int, capfd: pytest.CaptureFixture[str]) -> None:
    disk = small_disk(2 << 20)
    data = disk.folder / "data"
    database = open_instance(data)
    table = database.create_table("t", [{"id": number, "v": "x"} for number in range(10)], key="id")
    rows, made = set(range(10)), {"t", "dead_letters"}
    refusals: list[StorageError] = []
    disk.leave(room)

    def tried(action: Callable[[], object]) -> bool:
        """Whether there was room for it."""
        try:
            action()
        except StorageError as exc:
            refusals.append(exc)
            return False
        return True

    for number in range(4):
        new, old, first = f"u{number}", f"u{number - 1}", 1000 * (number + 1)
        many = [(key, "y" * 100) for key in range(first, first + 10**number)]
        if tried(lambda new=new: database.sql(f"CREATE TABLE {new} (id INT)")):
            made.add(new)
        if tried(lambda many=many: table.insert(many)):
            rows.update(key for key, _ in many)
        if number and tried(lambda old=old: database.sql(f"DROP TABLE IF EXISTS {old}")):
            made.discard(old)
        tried(table.checkpoint)
        tried(lambda new=new: database.sql(f"CREATE VIEW view_{new} AS SELECT 1"))
        assert {row.id for row in table.rows()} == rows
    database.close()
    with pytest.raises(ClosedError):
        table.insert([(5000, "z")])
    # A full disk can be opened, read and closed, and what has room can be written.
    with open_instance(data) as again:
        assert {row.id for row in again.table("t").rows()} == rows
        if tried(lambda: again.table("t").insert([(6000, "z")])):
            rows.add(6000)
    disk.empty()
    with open_instance(data) as again:
        assert {row.id for row in again.table("t").rows()} == rows
        assert set(again.sql("SHOW TABLES").arrow()["name"].to_pylist()) == made
        assert all(report.good for report in again.verify())
        again.table("t").insert([(7000, "z")])
        again.sql("CREATE TABLE v (id INT)")
        assert not [path for path in data.rglob("*") if path.name.endswith((".new", ".partial"))]
    assert capfd.readouterr().err == ""
    for each in refusals:
        assert each.message.startswith(f'file "{disk.folder}')
        assert each.message.endswith("cannot be written: no space left on device")
        assert str(each.hint).startswith("make room on the disk")
    assert refusals or room >= 1 << 15


def test_a_log_that_cannot_be_written_says_nothing_and_closes(small_disk) -> None:
    disk = small_disk(1 << 20)
    with open_instance(disk.folder / "data"):
        disk.leave(0)
        for _ in range(1000):
            logging.getLogger("velostream.trial").warning("x" * 1000)


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "make room"),
        (errno.EDQUOT, "make room on the disk, or have the quota raised"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EROFS, "mount the disk"),
        (errno.EACCES, "let the user of this process"),
        (errno.EIO, "look at the disk"),
    ],
)
def test_one_translation(number: int, remedy: str) -> None:
    with pytest.raises(StorageError) as caught, storing("/data/t/log"):
        raise OSError(number, os.strerror(number))
    assert caught.value.message == f'file "/data/t/log" cannot be written: {os.strerror(number).lower()}'
    assert remedy in str(caught.value.hint)
    assert caught.value.retryable
    other = unkept(OSError(number, os.strerror(number), "/data/x"))
    assert other is not None
    assert other.message.startswith('file "/data/x" cannot be written: ')
    assert unkept(ConnectionResetError(errno.ECONNRESET, "x")) is None


def test_what_java_says_of_its_files() -> None:
    told = unkept_by_java(
        "java.io.FileNotFoundException: /d/jobs/1/checkpoint/offsets/.3.tmp (No space left on device)\n\tat"
    )
    assert told is not None
    assert (
        told.message
        == 'file "/d/jobs/1/checkpoint/offsets/.3.tmp" cannot be written: no space left on device'
    )
    assert unkept_by_java("[DIVIDE_BY_ZERO] Division by zero") is None


@pytest.mark.spark
@pytest.mark.parametrize("room", [0, 1 << 14])
def test_jobs_go_on_when_there_is_room_again(
    small_disk, opened, tmp_path: Path, wait_until, room: int
) -> None:
    disk = small_disk(16 << 20)
    source, written = tmp_path / "rows.csv", disk.folder / "out.csv"
    source.write_text("id,v\n" + "".join(f"{n},{n % 7}\n" for n in range(1000)))
    database = opened(disk.folder / "data")
    quick = "WITH ('file.debounce' = '0ms', 'file.poll.interval' = '20ms')"
    database.sql(f"CREATE TABLE raw AS SELECT id, v FROM file://{source} {quick}")
    database.sql("CREATE TABLE sums AS SELECT v, COUNT(*) AS n FROM raw GROUP BY v")
    database.sql(f"INSERT INTO file://{written} SELECT id FROM file://{source} {quick}")
    disk.leave(room)
    with source.open("a") as out:
        out.write("bad,1\n" + "".join(f"{n},{n % 7}\n" for n in range(1000, 21_000)))

    def degraded() -> dict[str, Any]:
        return {job.name: job for job in database.jobs() if str(job.state) == "degraded"}

    wait_until(lambda: "raw" in degraded())
    assert "no space left on device" in degraded()["raw"].reason
    assert "trying again in" in degraded()["raw"].reason
    assert database.sql("SELECT COUNT(*) FROM raw").scalar() == 1000
    with refusal("data_dir.storage", why="no space left on device"):
        database.sql(f"CREATE TABLE more AS SELECT id FROM file://{source}")
    disk.empty()

    def whole() -> bool:
        count = database.sql("SELECT COUNT(*) FROM raw").scalar()
        return (
            count
            == database.sql("SELECT SUM(n) FROM sums").scalar()
            == len(written.read_text().split()) - 1
            == 21_000
        )

    wait_until(whole, 60)
    wait_until(lambda: not degraded())
    # One for each job that read the row.
    assert database.sql("SELECT COUNT(*) FROM dead_letters").scalar() == 2
    assert [entry.name for entry in database.catalog if entry.name == "more"] == []
    disk.leave(0)
    database.close()
    disk.empty()
    again = opened(disk.folder / "data")
    assert again.wait_idle(60)
    assert again.sql("SELECT SUM(n) FROM sums").scalar() == 21_000
    assert all(report.good for report in again.verify())
