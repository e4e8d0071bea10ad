"""Compaction of the spool: small segments are merged, so that a file that grows for years is read from few.

Only neighbours are merged, so segments stay in the order in which their records were read. A record keeps its
file, its offset and its instant, hence its position.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from velostream.connectors.base import log
from velostream.connectors.files.spool.instants import packed
from velostream.connectors.files.spool.pending_files import WrittenFiles
from velostream.connectors.files.spool.segment_text import SegmentText
from velostream.connectors.files.spool.segments import Piece, PieceId, Segment
from velostream.connectors.files.spool.spool import INDEX, INSTANTS
from velostream.connectors.files.watch.layout import format_of
from velostream.disk.full_disk import storing
from velostream.errors import StorageError
from velostream.formats.records import join_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from velostream.connectors.files.spool.spool import Spool

FEWEST = 8
"""At least this many neighbours are merged: less work, for up to this many segments of each size."""
_MOST = 1000
_LARGEST = 16 * 1024 * 1024
"""Bounds the cost of one merge, and what is rewritten when a single record is retracted later."""
_OVERHEAD = 4096
"""The cost of a segment besides its bytes, so that tiny ones count as equal."""


def merge_small(spool: Spool, position: int) -> bool:
    """Merge one run of small segments that are live at `position` and now; False when there is none.

    Ranges that begin before `position` cannot be read afterwards. On a full disk nothing changes.
    """
    members = choose(spool.settled(position))
    if not members:
        return False
    merge = _Merge(spool, members)
    try:
        with storing(spool.folder):
            segment = merge.write()
            spool.merge(position, segment, merge.moved)
    except StorageError as exc:
        merge.abandon()
        log.warning("segments could not be merged: %s", exc.message)
        return False
    return True


def choose(segments: Sequence[Segment | None]) -> list[Segment]:
    """Neighbours that are worth merging, of segments in the order of age; None is a segment in use.

    From the newest on, a segment joins if it is at most twice as large as all newer ones together. So a
    record is rewritten only when its segment grows by half, and the sizes of segments that do not join fall
    to a third: the number of small segments is logarithmic.
    """
    window: list[Segment] = []
    total = 0
    for segment in reversed(segments):
        cost = _OVERHEAD + (segment.size if segment is not None else 0)
        if segment is not None and _joins(segment, cost, window, total):
            window.append(segment)
            total += cost
            continue
        if len(window) >= FEWEST:
            break
        small = segment is not None and segment.kind == "text"
        window, total = ([segment], cost) if segment is not None and small else ([], 0)
    return window[::-1] if len(window) >= FEWEST else []


def _joins(segment: Segment, cost: int, window: Sequence[Segment], total: int) -> bool:
    if not window or len(window) == _MOST or total + cost > _LARGEST:
        return False
    alike = segment.kind == "text" and segment.columns == window[0].columns
    return alike and format_of(segment.path) == format_of(window[0].path) and cost <= 2 * total


@dataclass
class _Run:
    """Pieces that become one piece of the merged segment."""

    piece: Piece
    last: PieceId
    texts: list[bytes] = field(default_factory=list)


class _Merge:
    """One merged segment while it is written."""

    def __init__(self, spool: Spool, members: Sequence[Segment]) -> None:
        self._spool = spool
        self._members = members
        self._readers = [SegmentText(spool, member) for member in members]
        self._indexed = any(member.indexed for member in members)
        self._separator = self._common_separator()
        self._next = _neighbours(state.pieces for state in spool.files.values())
        self._runs: list[_Run] = []
        self.moved: dict[str, list[list[PieceId]]] = {}
        self._name = spool.new_name("txt")
        self._written = WrittenFiles()

    def write(self) -> Segment:
        """Write the merged segment durably."""
        starts: list[NDArray[np.int64]] = []
        instants: list[NDArray[np.int64]] = []
        for reader in self._readers:
            moves = self.moved.setdefault(reader.segment.name, [])
            for number in range(len(reader.segment.pieces)):
                moves.append([self._take(reader, number)])
                instants.append(reader.instants(number))
                if self._indexed:
                    starts.append(reader.starts(number))
        texts = [text for run in self._runs for text in run.texts]
        sums = [self._written.save(self._spool.place(self._name), texts)]
        if self._indexed:
            text = np.concatenate(starts).astype("<i8").tobytes()
            sums.append(self._written.save(self._spool.place(self._name, INDEX), [text]))
        packed_instants = [packed(np.concatenate(instants))]
        sums.append(self._written.save(self._spool.place(self._name, INSTANTS), packed_instants))
        return Segment(
            self._name,
            "text",
            sum(member.rows for member in self._members),
            sum(map(len, texts)),
            self._members[0].at_micros,
            tuple(run.piece for run in self._runs),
            self._members[0].columns,
            self._separator,
            self._indexed,
            timed=True,
            plain=all(member.plain for member in self._members),
            sums=tuple(sums),
        )

    def abandon(self) -> None:
        """Delete what was written."""
        self._written.abandon()

    def _common_separator(self) -> bytes:
        separators = {member.separator for member in self._members}
        if len(separators) == 1:
            return separators.pop()
        records = [
            r
            for reader in self._readers
            for n in range(len(reader.segment.pieces))
            for r in reader.records(n)
        ]
        return join_records(records)[1]

    def _take(self, reader: SegmentText, number: int) -> PieceId:
        """Add a piece; returns the id of the piece that holds its records now."""
        old = PieceId(reader.segment.name, number)
        text = reader.text(number)
        if reader.segment.separator != self._separator:
            text = b"".join(record + self._separator for record in reader.records(number))
        piece = reader.segment.pieces[number]
        line_end = 0 if self._indexed else piece.line_end
        piece = piece._replace(size=len(text), line_end=line_end)
        run = self._runs[-1] if self._runs else None
        if run is not None and self._continues(run, piece, old):
            joined = run.piece
            run.piece = joined._replace(rows=joined.rows + piece.rows, size=joined.size + piece.size)
            run.last = old
        else:
            run = _Run(piece, old)
            self._runs.append(run)
        run.texts.append(text)
        return PieceId(self._name, len(self._runs) - 1)

    def _continues(self, run: _Run, piece: Piece, old: PieceId) -> bool:
        """Whether a piece can extend the run before it: it must follow it in its file as well."""
        before = run.piece
        if before.path != piece.path or before.line_end != piece.line_end:
            return False
        # Records that a stream could not retract belong to no file any more, so they have no successor; two
        # such neighbours may still form one piece.
        adjacent = self._next[run.last] == old if run.last in self._next else old not in self._next
        if not adjacent:
            return False
        if self._indexed:
            return True
        end = before.start + before.size + before.rows * (before.line_end - len(self._separator))
        return piece.start == end


def _neighbours(files: Iterable[Sequence[PieceId]]) -> Mapping[PieceId, PieceId | None]:
    """For each piece that belongs to a file, the piece that follows it there."""
    return {
        piece: following
        for pieces in files
        for piece, following in zip(pieces, [*pieces[1:], None], strict=False)
    }
