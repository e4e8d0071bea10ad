"""Private files and folders: accessible to their owner only, whatever the umask of the process."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

FILE = 0o600
FOLDER = 0o700
OTHERS = 0o077
"""The permissions of others; also the umask of processes that write for us."""


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, private; an existing folder is not changed."""
    try:
        path.mkdir(FOLDER)
    except FileExistsError:
        if not path.is_dir():
            raise
    except FileNotFoundError:
        make_folder(path.parent)
        path.mkdir(FOLDER, exist_ok=True)


def open_file(path: Path, mode: str, encoding: str | None = None) -> IO[Any]:
    """`open`, but a file that it creates is private."""
    return open(path, mode, encoding=encoding, opener=_made_private)


def _made_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE)


def close_to_others(root: Path) -> None:
    """Remove all access of others to a folder and its contents; symbolic links are not followed."""
    _close(root)
    # os.walk passes over a folder that is gone: the JVM of a killed process may still be removing its own.
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            _close(Path(folder, name))


def _close(path: Path) -> None:
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if mode & OTHERS and not stat.S_ISLNK(mode):
            path.chmod(stat.S_IMODE(mode) & ~OTHERS)
