"""Data directories that cannot be used say which, why, and what to do."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from velostream.errors import CorruptDataError, DataDirError
from velostream.runtime.catalog import remembered
from velostream.runtime.datadir import DataDirectory, write_json

if TYPE_CHECKING:
    from pathlib import Path


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DataDirectory(tmp_path / "data")
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(DataDirError, match=r"cannot use data directory .*data: no space left on device"):
            directory.hold()
    assert directory.holder() is None
    directory.hold()
    directory.release()


def test_a_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "catalog.json"
    write_json(path, {"a": 1})
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(DataDirError, match=r"catalog\.json cannot be written: no space left on device"):
            write_json(path, {"a": 2})
    assert path.read_text() == '{\n "a": 1\n}'


def test_a_file_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    for path in ("data", "data/inside"):
        with pytest.raises(DataDirError, match="cannot use data directory") as caught:
            DataDirectory(tmp_path / path).hold()
        assert caught.value.hint == "give another directory with --data-dir"


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ('{"format": 9, "entries": []}', DataDirError, "has format 9, this version reads 1"),
        ("{", CorruptDataError, r"catalog\.json is damaged"),
        ("[]", CorruptDataError, r"catalog\.json is damaged"),
        ('{"format": 1}', CorruptDataError, r"catalog\.json is damaged"),
    ],
)
def test_a_catalogue_that_cannot_be_read(
    tmp_path: Path, content: str, error: type[Exception], message: str
) -> None:
    (tmp_path / "catalog.json").write_text(content)
    with pytest.raises(error, match=message):
        remembered(tmp_path)
