"""Trials: the product where resources end or are abused. Small samples here, whole ones in `make soak`."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from spark_databases import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["opened"]


class SmallDisk:
    """A file system of a few megabytes, of which a test leaves as much as it likes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def leave(self, room: int) -> None:
        """Fill it so that no more than `room` bytes are free."""
        self.empty()
        there = os.statvfs(self.folder)
        # Jobs may write meanwhile, and take what was counted as free.
        with suppress(OSError), self._filler.open("wb", buffering=0) as out:
            out.write(bytes(max(0, there.f_bavail * there.f_frsize - room)))

    def empty(self) -> None:
        """Make room again."""
        self._filler.unlink(missing_ok=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], SmallDisk]]:
    """`small_disk(bytes)`: a file system of that size; needs the right to mount."""
    mounted: list[Path] = []

    def make(size: int) -> SmallDisk:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as exc:
            pytest.skip(f"a file system cannot be mounted here: {getattr(exc, 'stderr', exc)}".strip())
        mounted.append(folder)
        return SmallDisk(folder)

    yield make
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)
