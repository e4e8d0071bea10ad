"""A file that moves keeps its rows; another in its place does not inherit them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from files_model import keys, reader_of
from velostream.connectors.file import folder as local
from velostream.connectors.files.spool.segments import Identity

KINDS = pytest.mark.parametrize("table", [True, False], ids=["table", "stream"])


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def changed(reader, since):
    changes = reader.source.spool.changes(since["spool"], reader.offset["spool"])
    return sum(segment.rows for segment, _ in changes)


def reuse_places(monkeypatch, places: dict[Path, int]):
    """Have the system say that files lie in chosen places of the disk."""

    def identify(found):
        real = Identity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        for path, inode in places.items():
            if path.exists() and path.stat().st_ino == found.st_ino:
                return real._replace(inode=inode)
        return real

    monkeypatch.setattr(local, "identify", identify)


@KINDS
@pytest.mark.parametrize("content", ["a,b\n2,2\n3,2\n4,2\n", "a,b\n1,2\n2,2\n", "a,b\n"])
def test_a_place_that_is_used_again_is_no_rename(folder, tmp_path, monkeypatch, table, content):
    one, other = folder / "a.csv", folder / "b.csv"
    one.write_text("a,b\n1,2\n2,2\n3,2\n")
    reuse_places(monkeypatch, {one: 77, other: 77})
    reader = reader_of(folder / "*.csv", tmp_path, table=table)
    assert keys(reader.settle()) == ["1", "2", "3"]
    one.unlink()
    other.write_text(content)
    new = [line[0] for line in content.split()[1:]]
    assert keys(reader.settle()) == (new if table else sorted(["1", "2", "3", *new]))
    assert not reader.bad
    assert reader.source.settled()


@KINDS
@pytest.mark.parametrize("restart", [False, True])
def test_a_rotated_file_keeps_its_rows(folder, tmp_path, table, restart):
    current, first, second = (folder / name for name in ("app.csv", "app-1.csv", "app-2.csv"))
    current.write_text("a,b\n1,2\n2,2\n")
    reader = reader_of(folder / "app*.csv", tmp_path, table=table)
    reader.settle()
    for number, expected in ((3, ["1", "2", "3"]), (4, ["1", "2", "3", "4"])):
        since = reader.offset
        if first.exists():
            first.rename(second)
        current.rename(first)
        current.write_text(f"a,b\n{number},2\n")
        if restart:
            reader.reopen()
        assert keys(reader.settle()) == expected
        assert changed(reader, since) == 1
    with first.open("a") as out:
        out.write("late,2\n")
    assert keys(reader.settle()) == ["1", "2", "3", "4", "late"]
    assert not reader.bad


@KINDS
def test_a_rotation_that_drops_the_oldest(folder, tmp_path, table):
    current, first = folder / "app.csv", folder / "app-1.csv"
    first.write_text("a,b\n1,2\n")
    current.write_text("a,b\n2,2\n")
    reader = reader_of(folder / "app*.csv", tmp_path, table=table)
    reader.settle()
    since = reader.offset
    current.replace(first)
    current.write_text("a,b\n3,2\n")
    assert keys(reader.settle()) == (["2", "3"] if table else ["1", "2", "3"])
    assert changed(reader, since) == (2 if table else 1)
    reader.reopen()
    current.unlink()
    assert keys(reader.settle()) == (["2"] if table else ["1", "2", "3"])


def test_two_files_that_change_names(folder, tmp_path):
    one, other = folder / "a.csv", folder / "b.csv"
    one.write_text("a,b\n1,2\n")
    other.write_text("a,b\n2,2\n")
    reader = reader_of(folder / "*.csv", tmp_path)
    reader.settle()
    since = reader.offset
    one.rename(folder / "c.tmp")
    other.rename(one)
    (folder / "c.tmp").rename(other)
    assert keys(reader.settle()) == ["1", "2"]
    assert changed(reader, since) == 0
    one.unlink()
    assert keys(reader.settle()) == ["1"]


def test_a_name_of_another_format_is_no_name_for_the_same_rows(folder, tmp_path):
    (folder / "x.csv").write_text("a,b\n1,2\n")
    (folder / "y.csv").write_text("a,b\n3,4\n")
    reader = reader_of(f"{folder}/", tmp_path)
    reader.settle()
    (folder / "x.csv").rename(folder / "x.csv.bak")
    assert keys(reader.settle()) == ["3"]


def test_a_rename_that_cannot_be_read_waits(folder, tmp_path, monkeypatch):
    (folder / "app.csv").write_text("a,b\n1,2\n")
    reader = reader_of(folder / "*.csv", tmp_path, table=False)
    reader.settle()
    (folder / "app.csv").rename(folder / "app-1.csv")
    (folder / "app.csv").write_text("a,b\n3,2\n")
    real = Path.open

    def refused(self, *rest):
        if self.name == "app-1.csv":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return real(self, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", refused)
        assert keys(reader.settle()) == ["1"]
        assert reader.source.health()[0] == "degraded"
    assert keys(reader.settle()) == ["1", "3"]
    assert not reader.bad
