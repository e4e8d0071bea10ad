"""Where files are: a folder of this machine, or a bucket of an object store."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import IO, TYPE_CHECKING

from velostream.errors import SourceAuthError, SourceUnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from threading import Event

    from velostream.connectors.files.spool.segments import Identity

_MAGIC = re.compile(r"[*?{\[]")


@dataclass
class Listing:
    """The files at one moment."""

    files: dict[str, Identity] = field(default_factory=dict)
    """By name, sorted; a file that has several names (links) is listed once."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Files and folders that exist but cannot be read, with the reason: their rows are not retracted."""


class Place(ABC):
    """The files that a source names: one, those in a folder, or those that match a pattern.

    A name identifies a file of the place. An identity is what a listing tells of a file; as long as it is the
    same, so is the content, but for what `grain` says.
    """

    grain: timedelta
    """A file may change again within this time without a new identity."""
    clocks: timedelta = timedelta(0)
    """How far the clock that dates files may differ from ours."""
    renames: bool = False
    """Whether `Identity.place` recognises a file under another name."""
    compares: bool = True
    """Whether files may be edited in place while no process watches, and still have the same identity."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The place, as messages name it."""

    @property
    @abstractmethod
    def several(self) -> bool:
        """Whether it may name several files, so that a vanished file is a deletion and not an outage."""

    @abstractmethod
    def check(self) -> Listing:
        """The files that exist now; raises the SourceError that says why there is none."""

    @abstractmethod
    def look(self) -> Listing:
        """The files that exist now; raises if that cannot be found out, which is not the same as none."""

    @abstractmethod
    def absent(self) -> str | None:
        """Why no file can be there at all, such as a missing folder; None where there is no such reason."""

    def outlived(self, identity: Identity) -> bool:
        """Whether the clock that dates files was past `grain` after this time when the place was looked at.

        Whatever is written after that look has another identity.
        """
        return False

    @abstractmethod
    def open(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A file's content, which can be sought; raises OSError if it cannot be read."""

    @abstractmethod
    def identity(self, path: str, stream: IO[bytes]) -> Identity:
        """The identity of an opened file now."""

    def listen(self, news: Event) -> None:  # noqa: B027
        """Set `news` whenever files may have come, changed or gone, where the place can tell."""

    def expect(self, paths: Sequence[str]) -> None:  # noqa: B027
        """These files are opened next, in this order: their content may be fetched ahead."""

    def same(self, path: str, stream: IO[bytes]) -> bool | None:
        """Whether an opened file is as it was when it was last taken; None where content must be compared."""
        return None

    def took(self, path: str, stream: IO[bytes]) -> None:  # noqa: B027
        """The rows of an opened file were taken, as far as a step goes: `same` compares with it."""

    def took_nothing(self) -> None:  # noqa: B027
        """The step failed: what was taken is not kept."""

    def close(self) -> None:  # noqa: B027
        """Close connections."""

    def readable(self, path: str) -> bool:
        """Whether an existing file may be read, as far as can be told without reading it."""
        return True


def is_pattern(text: str) -> bool:
    """Whether a path has wildcards."""
    return _MAGIC.search(text) is not None


def matcher(pattern: str) -> re.Pattern[str]:
    """The names that a glob matches: `*` and `?` match within a name, `**` across, `{a,b}` either."""
    return re.compile(_translate(pattern))


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Turns an OSError into a retryable SourceUnreadableError that names the path."""
    try:
        yield
    except OSError as exc:
        raise SourceUnreadableError(
            f"{path} cannot be read: {why(exc)}",
            hint="reading resumes by itself; rows that were read stay",
        ) from exc


def forbidden(path: Path | str) -> SourceAuthError:
    """The error for a file or folder that may not be read."""
    return SourceAuthError(f'"{path}" may not be read: permission denied', hint="check its permissions")


def why(exc: OSError) -> str:
    """The reason of an OSError, in the style of our messages."""
    return (exc.strerror or str(exc)).lower()


def _translate(pattern: str) -> str:
    """A glob as a regular expression."""
    out: list[str] = []
    depth, position = 0, 0
    while position < len(pattern):
        char = pattern[position]
        if pattern.startswith("**/", position):
            out.append("(?:.*/)?")
            position += 3
            continue
        if pattern.startswith("**", position):
            out.append(".*")
            position += 2
            continue
        if char == "[" and (close := pattern.find("]", position + 2)) > 0:
            inner = pattern[position + 1 : close]
            out.append("[" + ("^" + inner[1:] if inner[0] == "!" else inner).replace("\\", "\\\\") + "]")
            position = close + 1
            continue
        depth += (char == "{") - (char == "}" and depth > 0)
        simple = {"*": "[^/]*", "?": "[^/]", "{": "(?:"}
        if char == "}" and out and pattern[:position].count("{") > pattern[:position].count("}"):
            out.append(")")
        elif char == "," and depth > 0:
            out.append("|")
        else:
            out.append(simple.get(char) or re.escape(char))
        position += 1
    return "".join(out)
