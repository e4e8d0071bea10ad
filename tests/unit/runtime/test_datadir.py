"""Data directories that cannot be used say which, why, and what to do."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from refusals import refusal
from velostream.runtime import instance, logs
from velostream.runtime.catalog.catalog import remembered
from velostream.runtime.catalog.file import CatalogFile
from velostream.runtime.datadir import FORMAT, DataDirectory
from velostream.runtime.instance import open_instance

if TYPE_CHECKING:
    from pathlib import Path


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DataDirectory(tmp_path / "data")
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with refusal("data_dir", why="no space left on device"):
            directory.hold()
    assert directory.holder() is None
    directory.hold()
    directory.release()


def test_a_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = CatalogFile(tmp_path)
    file.write({"entries": [1]})
    before = file.path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with refusal("data_dir.storage", "catalog.json", why="no space left on device"):
            file.write({"entries": [2]})
    assert file.path.read_bytes() == before
    assert CatalogFile(tmp_path).read() == {"format": FORMAT, "entries": [1]}


def test_a_file_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    for path in ("data", "data/inside"):
        with refusal("data_dir", tmp_path / path, why="cannot use") as caught:
            DataDirectory(tmp_path / path).hold()
        assert caught.value.hint == "give another directory with --data-dir"


@pytest.mark.parametrize(
    ("content", "code", "why"),
    [
        ('{"format": 9, "entries": []}', "data_dir", "format 9"),
        ("{", "data_dir.corrupt", "damaged"),
        ("[]", "data_dir.corrupt", "damaged"),
        ('{"format": 1}', "data_dir.corrupt", "damaged"),
        ('{"format": 2, "entries": []}', "data_dir.corrupt", "no checksum"),
    ],
)
def test_a_catalogue_that_cannot_be_read(tmp_path: Path, content: str, code: str, why: str) -> None:
    (tmp_path / "catalog.json").write_text(content)
    with refusal(code, tmp_path, why=why):
        remembered(tmp_path)


def test_a_free_directory_is_free_while_others_look(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.hold()
    directory.release()
    looking = os.open(tmp_path / "lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    assert directory.holder() is None
    holding = threading.Thread(target=directory.hold)
    holding.start()
    os.close(looking)
    holding.join(10)
    assert DataDirectory(tmp_path).holder() == os.getpid()
    with refusal("data_dir", os.getpid()):
        DataDirectory(tmp_path).hold()
    directory.release()


def test_only_the_owner_may_read_statements(tmp_path: Path) -> None:
    file = CatalogFile(tmp_path)
    for _ in range(2):
        file.write({"entries": []})
    for path in (file.path, *file.copies.iterdir()):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_start_that_fails_lets_the_directory_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (logs, instance):
        name = "log_to" if place is logs else "listen"
        with monkeypatch.context() as patched:
            patched.setattr(place, name, full)
            with pytest.raises(OSError, match="No space left"):
                open_instance(tmp_path)
        assert DataDirectory(tmp_path).holder() is None
    open_instance(tmp_path).close()


def test_what_a_killed_select_had_read_is_removed(tmp_path: Path) -> None:
    open_instance(tmp_path).close()
    left = tmp_path / "tmp" / "select-left"
    left.mkdir(parents=True)
    open_instance(tmp_path).close()
    assert not left.exists()
