"""The records of one text segment."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from velostream.connectors.files.spool.instants import instants_of
from velostream.formats.records import record_positions, split_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from velostream.connectors.files.spool.segments import Segment
    from velostream.connectors.files.spool.spool import Spool

    Positions = NDArray[np.int64]


class SegmentText:
    """The records of a text segment, read once, piece by piece."""

    def __init__(self, spool: Spool, segment: Segment) -> None:
        self.segment = segment
        self._text = spool.path(segment).read_bytes()
        self._offsets = list(accumulate((piece.size for piece in segment.pieces), initial=0))
        self._numbers = list(accumulate((piece.rows for piece in segment.pieces), initial=0))
        self._index: Positions | None = None
        if segment.indexed:
            self._index = np.frombuffer(spool.index_path(segment).read_bytes(), dtype="<i8")
        self._instants = instants_of(spool, segment)

    def text(self, number: int) -> bytes:
        """The records of one piece, a separator after each."""
        return self._text[self._offsets[number] : self._offsets[number + 1]]

    def records(self, number: int) -> list[bytes]:
        """The records of one piece."""
        return split_text(self.text(number), self.segment.separator)

    def starts(self, number: int) -> Positions:
        """The offsets in their file at which the records of one piece began."""
        piece = self.segment.pieces[number]
        if self._index is not None:
            return self._index[self._numbers[number] : self._numbers[number + 1]]
        return piece.start + record_positions(self.records(number), piece.line_end)

    def instants(self, number: int) -> Positions:
        """When the records of one piece were read."""
        return self._instants[self._numbers[number] : self._numbers[number + 1]]

    def slice(self, number: int, begin: int, end: int) -> tuple[bytes, Positions]:
        """The text and the offsets of some records of one piece."""
        records = self.records(number)[begin:end]
        separator = self.segment.separator
        return separator.join(records) + separator, self.starts(number)[begin:end]
