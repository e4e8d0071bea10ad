"""One file at one look, and whether it stayed as it was meanwhile."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from velostream.connectors.file.spool.content import read_at
from velostream.connectors.file.watch.paths import identify

if TYPE_CHECKING:
    from velostream.connectors.file.spool.segments import Identity
    from velostream.connectors.file.watch.layout import Layout


class MovingFileError(Exception):
    """The file was written to while it was read: what was read of it may be half of an edit."""


@dataclass(frozen=True)
class Look:
    """One file at one look."""

    path: str
    identity: Identity
    layout: Layout
    stream: IO[bytes]
    quiet: bool
    """Nothing was written to it for the debounce time, so that it is taken as it is."""

    def content(self) -> bytes:
        """All of it, for a change that takes rows back. Raises MovingFileError unless it stood still."""
        raw = read_at(self.stream, 0, self.identity.size)
        self.check_still()
        return raw

    def check_still(self) -> None:
        """Raise MovingFileError if it was written to since it was opened."""
        if not self.still:
            raise MovingFileError

    @property
    def still(self) -> bool:
        """Whether it is as it was when it was opened."""
        return identify(os.fstat(self.stream.fileno())) == self.identity
