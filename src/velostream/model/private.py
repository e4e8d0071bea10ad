"""Files and folders for their owner alone, whatever the umask of the process is."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

FILE = 0o600
FOLDER = 0o700
OTHERS = 0o077
"""What others may do, and with which umask processes start that write for us."""


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, each closed to others; one that is there stays."""
    try:
        path.mkdir(FOLDER)
    except FileExistsError:
        if not path.is_dir():
            raise
    except FileNotFoundError:
        make_folder(path.parent)
        path.mkdir(FOLDER, exist_ok=True)


def open_file(path: Path, mode: str, encoding: str | None = None) -> IO[Any]:
    """`open`, where a file that it makes is closed to others."""
    return open(path, mode, encoding=encoding, opener=_made_private)


def _made_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE)


def close_to_others(root: Path) -> None:
    """Take from others what they may do with a folder and everything in it, but for what links lead to."""
    for path in (root, *root.rglob("*")):
        with suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if mode & OTHERS and not stat.S_ISLNK(mode):
                path.chmod(stat.S_IMODE(mode) & ~OTHERS)
