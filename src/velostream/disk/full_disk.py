"""Errors of the file system, translated to ours in one place."""

from __future__ import annotations

import errno
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from velostream.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOM = "make room on the disk"
_REMEDIES = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: f"{_ROOM}, or have the quota raised",
    errno.EMFILE: "let this process open more files: ulimit -n",
    errno.ENFILE: "let the system open more files: sysctl fs.file-max",
    errno.EROFS: "mount the disk so that it can be written",
    errno.EACCES: "let the user of this process read and write there",
    errno.EPERM: "let the user of this process read and write there",
    errno.EIO: "look at the disk, and at what the system logs about it",
}
_TOLD_BY_JAVA = [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS, errno.EIO]
_JAVA_FILE = re.compile(r"(/[^\s():]+)(?: \(|: )$")


@contextmanager
def storing(path: os.PathLike[str] | str, *, reading: bool = False) -> Iterator[None]:
    """Turns an OSError inside into a StorageError that names the file, the cause and a remedy."""
    try:
        yield
    except OSError as exc:
        raise storage_error(exc, path, reading=reading) from exc


def storage_error(exc: OSError, path: os.PathLike[str] | str, *, reading: bool = False) -> StorageError:
    """The error for an OSError; the file is the one that the system names, else `path`."""
    named = exc.filename if isinstance(exc.filename, str | os.PathLike) else path
    return _error(f'file "{os.fspath(named)}"', exc, reading=reading)


def unkept(exc: BaseException) -> StorageError | None:
    """The StorageError for an exception that was not translated yet; None if it is not about storage."""
    if not isinstance(exc, OSError) or exc.errno not in _REMEDIES:
        return None
    told = isinstance(exc.filename, str | bytes)
    named = f'file "{os.fsdecode(exc.filename)}"' if told else "what has to be kept"
    return _error(named, exc, reading=False)


def unkept_by_java(text: str) -> StorageError | None:
    """The same for messages of Java about its files."""
    for number in _TOLD_BY_JAVA:
        before, found, _ = text.partition(os.strerror(number))
        if found:
            path = _JAVA_FILE.search(before)
            named = f'file "{path[1]}"' if path is not None else "a file of Spark's"
            return _error(named, OSError(number, found), reading=False)
    return None


def remedy(exc: OSError, *others: str) -> str:
    """What can be done about an OSError, as a hint; `others` are appended."""
    return ", or ".join([*filter(None, [_REMEDIES.get(exc.errno or 0)]), *others])


def reason(exc: OSError) -> str:
    """The cause in lower case, for messages."""
    return (exc.strerror or str(exc)).lower()


def _error(named: str, exc: OSError, *, reading: bool) -> StorageError:
    return StorageError(
        f"{named} cannot be {'read' if reading else 'written'}: {reason(exc)}",
        hint="; ".join([*filter(None, [remedy(exc)]), "nothing was kept in part, and it can be tried again"]),
    )
