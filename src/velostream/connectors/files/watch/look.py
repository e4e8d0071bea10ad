"""One file at one poll, and whether it was written to meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from velostream.connectors.files.spool.content import read_at

if TYPE_CHECKING:
    from velostream.connectors.files.place import Place
    from velostream.connectors.files.spool.segments import Identity
    from velostream.connectors.files.watch.layout import Layout


class MovingFileError(Exception):
    """The file was written to while it was read, so the content read may be half of an edit."""


@dataclass(frozen=True)
class Look:
    """One file, opened at one poll."""

    place: Place
    path: str
    identity: Identity
    layout: Layout
    stream: IO[bytes]
    quiet: bool
    """Whether it was not written to for the debounce time, so that it counts as complete."""

    def content(self) -> bytes:
        """The whole content, for a change that retracts rows. Raises MovingFileError if it was written to."""
        raw = read_at(self.stream, 0, self.identity.size)
        self.check_still()
        return raw

    def check_still(self) -> None:
        """Raise MovingFileError if the file was written to since it was opened."""
        if not self.still:
            raise MovingFileError

    @property
    def still(self) -> bool:
        """Whether the file is unchanged since it was opened."""
        return self.place.identity(self.path, self.stream) == self.identity
