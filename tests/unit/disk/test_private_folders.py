"""Folders of an earlier version are closed to others while processes that were killed still tidy up."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from velostream.disk.private import OTHERS, close_to_others

if TYPE_CHECKING:
    import pytest


def test_a_folder_that_vanishes_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, gone = tmp_path / "left", tmp_path / "gone"
    for folder in (left, gone):
        folder.mkdir(0o755)
        (folder / "inside").write_text("x")
        (folder / "inside").chmod(0o644)
    chmod = Path.chmod

    def removing(path: Path, mode: int) -> None:
        chmod(path, mode)
        if path == gone:
            shutil.rmtree(gone)

    monkeypatch.setattr(Path, "chmod", removing)
    close_to_others(tmp_path)
    assert not gone.exists()
    assert not left.stat().st_mode & OTHERS
    assert not (left / "inside").stat().st_mode & OTHERS
