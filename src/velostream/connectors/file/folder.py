"""Files of this machine: one, those in a folder, or those that match a pattern."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from velostream.connectors.files.place import Listing, Place, forbidden, is_pattern, matcher, reading, why
from velostream.connectors.files.spool.segments import Identity
from velostream.errors import (
    FileMissingError,
    SourceConfigError,
    SourceUnreadableError,
    nearest,
    numbered,
)
from velostream.model.reach import Reach

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Sequence

_SHOWN = 5


@dataclass(frozen=True)
class Folder(Place):
    """See `Place`; evaluated at each call. A name is an absolute path."""

    text: str
    reach: Reach = field(default_factory=Reach)

    grain = timedelta(milliseconds=50)  # a kernel tick, with a margin
    renames = True

    @property
    def name(self) -> str:
        """See `Place`."""
        return str(self.path)

    @cached_property
    def path(self) -> Path:
        """The absolute path; wildcards are still in it."""
        return Path(os.path.abspath(Path(self.text).expanduser()))  # noqa: PTH100 - resolve() would follow links

    @cached_property
    def pattern(self) -> bool:
        """Whether the path has wildcards; a file with exactly that name is no pattern."""
        with reading(self.path):
            return is_pattern(self.text) and not self.path.exists()

    @property
    def several(self) -> bool:
        """See `Place`."""
        with reading(self.path):
            return self.pattern or self.text.endswith("/") or self.path.is_dir()

    @cached_property
    def folder(self) -> Path:
        """The folder that is searched."""
        if not self.pattern:
            return self.path if self.several else self.path.parent
        fixed: list[str] = []
        for part in self.path.parts:
            if is_pattern(part):
                break
            fixed.append(part)
        return Path(*fixed)

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        relative = self.path.relative_to(self.folder).as_posix()
        return matcher(relative)

    @cached_property
    def _recursive(self) -> bool:
        relative = self.path.relative_to(self.folder)
        return len(relative.parts) > 1 or "**" in str(relative)

    def absent(self) -> str | None:
        """See `Place`: the file, or the folder that is searched, does not exist."""
        place = self.folder if self.several else self.path
        with reading(place):
            there = self.folder.is_dir() if self.several else self.path.exists()
        return None if there else f"{place} does not exist"

    def open(self, path: str) -> BinaryIO:
        """See `Place`."""
        return Path(path).open("rb")

    def identity(self, path: str, stream: IO[bytes]) -> Identity:
        """See `Place`."""
        return identify(os.fstat(stream.fileno()))

    def readable(self, path: str) -> bool:
        """See `Place`."""
        return os.access(path, os.R_OK)

    def look(self) -> Listing:
        """See `Place`."""
        listing = Listing()
        self.reach.check_file(self.path)
        if not self.several:
            found = self._single()
            listing.files = {} if found is None else {str(self.path): found}
            return listing
        prefix = len(str(self.folder).rstrip("/")) + 1
        recursive = not self.pattern or self._recursive
        seen: set[tuple[int, int]] = set()
        # Of a file with several names, one without a symbolic link is preferred.
        for linked, path, identity in sorted(_scan(self.folder, recursive, listing.unreadable)):
            if self.pattern and not self._expression.fullmatch(path[prefix:]):
                continue
            if linked:
                self.reach.check_file(path)
            if identity.inode and identity.place in seen:
                continue
            seen.add(identity.place)
            listing.files[path] = identity
        listing.files = dict(sorted(listing.files.items()))
        return listing

    def _single(self) -> Identity | None:
        with reading(self.path):
            try:
                found = self.path.stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        if not stat.S_ISREG(found.st_mode):
            raise SourceConfigError(f'"{self.path}" is not a regular file')
        return identify(found)

    def check(self) -> Listing:
        """See `Place`."""
        if not self.text:
            raise SourceConfigError("a file source needs a path", hint="write file:///folder/name.csv")
        self.reach.check_file(self.path)
        try:
            return self._there()
        except SourceUnreadableError as exc:
            # Nothing was read yet that could be resumed.
            if isinstance(exc.__cause__, PermissionError):
                raise forbidden(self.path) from exc
            raise SourceUnreadableError(exc.message) from exc

    def _there(self) -> Listing:
        found = self.look()
        if not found.files:
            raise forbidden(next(iter(found.unreadable))) if found.unreadable else self.missing()
        return found

    def missing(self) -> FileMissingError:
        """The error for a missing file, with what can be done."""
        return self._missing_pattern() if self.several else self._missing_file()

    def _missing_file(self) -> FileMissingError:
        options = [
            "check the path",
            'wait for it:         WITH ("file.wait.timeout" = "30s")',
            'start with none:     WITH ("file.create.empty" = "true")',
        ]
        if not self.path.parent.is_dir():
            options[0] += f': the folder "{self.path.parent}" does not exist either'
        close = nearest(self.path.name, _names(self.path.parent))
        if close is not None:
            options.append(f'did you mean "{self.path.parent / close}"?')
        return FileMissingError(f'file "{self.path}" does not exist', detail=numbered(options))

    def _missing_pattern(self) -> FileMissingError:
        what = f'no file matches "{self.path}"' if self.pattern else f'folder "{self.path}" holds no file'
        if not self.folder.is_dir():
            looked = f'check the path: the folder "{self.folder}" does not exist'
        else:
            names = _names(self.folder)
            there = ", ".join(names[:_SHOWN]) + (
                f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            )
            looked = f'check the pattern: looked in "{self.folder}", which holds {there or "nothing"}'
        wait = 'wait for a match:    WITH ("file.wait.timeout" = "30s")'
        return FileMissingError(what, detail=numbered([looked, wait]))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError:
        return []


def identify(found: os.stat_result) -> Identity:
    """The identity of a file: changes whenever the file or its content is replaced."""
    return Identity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _scan(
    folder: Path, recursive: bool, unreadable: dict[str, str], above: Sequence[tuple[int, int]] = ()
) -> Iterator[tuple[bool, str, Identity]]:
    """Regular files below a folder, and whether a symbolic link leads to them.

    Hidden names and unfinished files (`.tmp`, `_…`) are left out. Symbolic links that lead back up are not
    followed. Only an unreadable top folder is an error; others are added to `unreadable`.
    """
    try:
        entries = list(os.scandir(folder))
        here = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as exc:
        if not above:
            with reading(folder):
                raise
        unreadable[str(folder)] = why(exc)
        return
    above = (*above, (here.st_dev, here.st_ino))
    for entry in entries:
        if entry.name[0] in "._" or entry.name.endswith((".tmp", ".partial")):
            continue
        try:
            linked = entry.is_symlink()
            found = entry.stat()
        except FileNotFoundError:
            continue
        except OSError as exc:
            # A link to itself is ignored, like a link whose target is gone.
            if exc.errno != errno.ELOOP:
                unreadable[entry.path] = why(exc)
            continue
        if stat.S_ISREG(found.st_mode):
            yield linked, entry.path, identify(found)
        elif recursive and stat.S_ISDIR(found.st_mode) and (found.st_dev, found.st_ino) not in above:
            for below, path, identity in _scan(Path(entry.path), recursive, unreadable, above):
                yield linked or below, path, identity
