"""What cannot be read for a while is not gone, and what is no file of its own is not read."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from files_model import keys, reader_of
from refusals import refusal
from velostream.connectors.files.watch import growth

REASONS = [errno.EMFILE, errno.EIO, errno.EACCES]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "in"
    (folder / "below").mkdir(parents=True)
    (folder / "x.csv").write_text("a,b\n1,2\n")
    (folder / "below" / "y.csv").write_text("a,b\n3,4\n")
    return folder


def failing(monkeypatch, name, path, reason, owner=os):
    """Have a call fail for a path alone."""
    real = getattr(owner, name)

    def call(what, *rest, **named):
        if str(what) == str(path):
            raise OSError(reason, os.strerror(reason))
        return real(what, *rest, **named)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("table", [True, False], ids=["table", "stream"])
def test_a_folder_that_cannot_be_listed_keeps_its_rows(folder, tmp_path, monkeypatch, reason, table):
    reader = reader_of(f"{folder}/", tmp_path, table=table)
    assert keys(reader.settle()) == ["1", "3"]
    with monkeypatch.context() as patched:
        failing(patched, "scandir", folder, reason)
        for _ in range(3):
            with refusal("source.unreadable", folder) as raised:
                reader.step()
        assert raised.value.retryable
    assert keys(reader.settle()) == ["1", "3"]
    assert reader.offset == {"spool": 1}


@pytest.mark.parametrize("reason", REASONS)
def test_a_file_whose_folder_cannot_be_looked_into_keeps_its_rows(folder, tmp_path, monkeypatch, reason):
    path = folder / "x.csv"
    reader = reader_of(path, tmp_path)
    reader.settle()
    with monkeypatch.context() as patched:
        failing(patched, "stat", path, reason, Path)
        with refusal("source.unreadable", path):
            reader.step()
    assert keys(reader.settle()) == ["1"]


def test_a_folder_below_that_cannot_be_listed_keeps_its_rows_while_others_go_on(
    folder, tmp_path, monkeypatch
):
    reader = reader_of(f"{folder}/", tmp_path)
    reader.settle()
    with monkeypatch.context() as patched:
        failing(patched, "scandir", folder / "below", errno.EACCES)
        (folder / "x.csv").write_text("a,b\n1,2\n5,6\n")
        assert keys(reader.settle()) == ["1", "3", "5"]
        assert reader.source.health() == (
            "degraded",
            f"{folder / 'below'} cannot be read: permission denied",
        )
    (folder / "below" / "y.csv").unlink()
    assert keys(reader.settle()) == ["1", "5"]
    assert reader.source.health() == ("healthy", None)


def test_a_file_that_cannot_be_opened_keeps_its_rows_while_others_go_on(folder, tmp_path, monkeypatch):
    reader = reader_of(f"{folder}/", tmp_path)
    reader.settle()
    (folder / "x.csv").write_text("a,b\n7,2\n")
    (folder / "below" / "y.csv").write_text("a,b\n3,4\n5,6\n")
    with monkeypatch.context() as patched:
        failing(patched, "open", folder / "x.csv", errno.EACCES, Path)
        assert keys(reader.settle()) == ["1", "3", "5"]
        assert reader.source.health()[1] == f"{folder / 'x.csv'} cannot be read: permission denied"
    assert keys(reader.settle()) == ["3", "5", "7"]
    assert reader.source.health() == ("healthy", None)


@pytest.mark.parametrize("how", [{"watch": "false"}, {"once": True}, {}], ids=str)
def test_a_file_that_has_to_be_read_is_an_error(folder, tmp_path, monkeypatch, how):
    path = f"{folder}/" if how else folder / "x.csv"
    # Long unchanged, so that a file counts as read at the first look.
    for file in (folder / "x.csv", folder / "below" / "y.csv"):
        os.utime(file, (10**9, 10**9))
    reader = reader_of(path, tmp_path, **how)
    with monkeypatch.context() as patched:
        failing(patched, "open", folder / "x.csv", errno.EIO, Path)
        with refusal("source.unreadable", why="input/output error"):
            reader.step()
    assert keys(reader.settle()) == (["1", "3"] if how else ["1"])


@pytest.mark.timeout(20)
def test_pipes_and_sockets_in_a_folder_are_no_files(folder, tmp_path):
    os.mkfifo(folder / "pipe.csv")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "s.csv"))
        reader = reader_of(f"{folder}/", tmp_path)
        assert keys(reader.settle()) == ["1", "3"]
    with refusal("source.config", "pipe.csv"):
        reader_of(folder / "pipe.csv", tmp_path / "other").step()


def test_links_do_not_multiply_rows(folder, tmp_path):
    (folder / "loop").symlink_to(".")
    (folder / "below" / "up").symlink_to("..")
    (folder / "again").symlink_to("below")
    (folder / "a.csv").symlink_to("x.csv")
    (folder / "self.csv").symlink_to("self.csv")
    os.link(folder / "x.csv", folder / "z.csv")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "o.csv").write_text("a,b\n5,6\n")
    (folder / "out").symlink_to(tmp_path / "outside")
    reader = reader_of(f"{folder}/", tmp_path)
    assert keys(reader.settle()) == ["1", "3", "5"]
    assert set(reader.source.spool.files) == {
        str(folder / name) for name in ("x.csv", "below/y.csv", "out/o.csv")
    }
    assert reader.source.health() == ("healthy", None)
    linked = reader_of(f"{folder}/again/*.csv", tmp_path / "linked")
    assert keys(linked.settle()) == ["3"]
    (folder / "x.csv").unlink()
    first = reader.offset
    assert keys(reader.settle()) == ["1", "3", "5"]
    assert not reader.source.spool.changes(first["spool"], reader.offset["spool"])


def test_a_file_that_fails_in_the_middle_loses_and_doubles_nothing(folder, tmp_path, monkeypatch):
    path = folder / "x.csv"
    path.write_text("a,b\n" + "".join(f"{number},x\n" for number in range(2000)))
    reader = reader_of(f"{folder}/", tmp_path, buffer_size="4096", table=False)
    real = growth.read_at

    def failing_late(stream, start, size):
        if start > 8000:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(stream, start, size)

    with monkeypatch.context() as patched:
        patched.setattr(growth, "read_at", failing_late)
        with refusal("source.unreadable", path):
            reader.step()
    reader.reopen()
    assert sum(reader.settle().values()) == 2001


def test_a_folder_that_goes_away_while_it_is_looked_at(folder, tmp_path, monkeypatch):
    reader = reader_of(folder / "**/*.csv", tmp_path)
    reader.settle()
    real = os.scandir

    def late(path):
        if folder.exists():
            folder.rename(tmp_path / "away")
        return real(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", late)
        assert not reader.step()
    assert reader.source.health()[0] == "file not found"
    (tmp_path / "away").rename(folder)
    assert keys(reader.settle()) == ["1", "3"]
    assert reader.source.health() == ("healthy", None)
