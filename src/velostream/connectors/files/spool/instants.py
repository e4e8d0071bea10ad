"""Instants: when each record of a segment was read.

Records of one poll share an instant, which is in the journal. A merged segment holds records of many polls;
its instants are in a file beside it, run-length encoded as pairs (number of records, instant).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from velostream.connectors.files.spool.segments import Segment
    from velostream.connectors.files.spool.spool import Spool


def instants_of(spool: Spool, segment: Segment) -> NDArray[np.int64]:
    """The instant of every record, in microseconds since 1970."""
    if not segment.timed:
        return np.full(segment.rows, segment.at_micros, dtype=np.int64)
    pairs = np.fromfile(spool.instants_path(segment), dtype="<i8").reshape(-1, 2)
    return np.repeat(pairs[:, 1], pairs[:, 0]).astype(np.int64)


def packed(instants: NDArray[np.int64]) -> bytes:
    """Instants, run-length encoded, as stored beside a segment."""
    begins = np.flatnonzero(np.diff(instants, prepend=instants[:1] - 1))
    counts = np.diff(begins, append=len(instants))
    return np.column_stack([counts, instants[begins]]).astype("<i8").tobytes()
