"""A draft of the next position of the spool: segments are written at once, the journal entry at the end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import TYPE_CHECKING

import numpy as np

from velostream.connectors.files.spool.instants import packed
from velostream.connectors.files.spool.pending_files import WrittenFiles
from velostream.connectors.files.spool.segment_text import SegmentText
from velostream.connectors.files.spool.segments import FileState, Piece, PieceId, Segment, SpooledBadRow
from velostream.connectors.files.spool.spool import INDEX, INSTANTS, Entry, Spool, resolve
from velostream.connectors.files.watch.layout import format_of
from velostream.disk.full_disk import storing
from velostream.disk.sealed_json import checksum
from velostream.formats.records import Records, record_positions, split_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Positions = NDArray[np.int64]

Columns = tuple[str, ...] | None


@dataclass
class _Buffer:
    """Pieces that will be written as one segment."""

    name: str
    columns: Columns
    separator: bytes
    texts: list[bytes] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    starts: list[Positions | None] = field(default_factory=list)
    instants: list[Positions] = field(default_factory=list)
    """The instants of each piece, where they differ from the segment's."""
    plain: bool = True
    size: int = 0

    def add(self, text: bytes, piece: Piece, starts: Positions | None) -> PieceId:
        self.texts.append(text)
        self.pieces.append(piece)
        self.starts.append(starts)
        self.size += len(text)
        return PieceId(self.name, len(self.pieces) - 1)


class Draft:
    """Collects the changes found by one poll of the files. Ended by `commit` or `abandon`."""

    def __init__(self, spool: Spool, at_micros: int, segment_size: int) -> None:
        self._spool = spool
        self._at_micros = at_micros
        self._segment_size = segment_size
        self._entry = Entry(spool.position + 1)
        self._buffers: dict[tuple[Columns, bytes, str | None], _Buffer] = {}
        self._written = WrittenFiles()
        self._known = dict(spool.live)
        self.bytes_added = 0

    # --- adding --------------------------------------------------------------------------------------

    def add(self, path: str, columns: Columns, records: Records, base: int) -> PieceId:
        """Add records of a file that begin at its byte `base`; small runs share a segment."""
        # Records of different columns, separators or formats are decoded differently, hence not together.
        key = (columns, records.separator, format_of(path))
        buffer = self._buffers.get(key)
        if buffer is None or buffer.size + len(records.text) > self._segment_size:
            if buffer is not None:
                self._flush(buffer)
            buffer = self._buffers[key] = _Buffer(self._spool.new_name("txt"), columns, records.separator)
        starts = None if records.starts is None else records.starts + base
        first = base if starts is None or not len(starts) else int(starts[0])
        piece = Piece(path, first, records.rows, len(records.text), records.line_end if starts is None else 0)
        self.bytes_added += len(records.text)
        buffer.plain &= records.plain
        return buffer.add(records.text, piece, starts)

    def add_binary(
        self, path: str, kind: str, rows: int, columns: Columns, write: Callable[[Path], None]
    ) -> PieceId:
        """Add a whole file in a binary format; `write` writes it to the path it is given."""
        name = self._spool.new_name(kind)
        target = self._spool.place(name)
        with storing(target), self._written.writing(target):
            write(target)
        size = target.stat().st_size
        piece = Piece(path, 0, rows, size)
        sums = (checksum(target),)
        segment = Segment(name, kind, rows, size, self._at_micros, (piece,), columns, sums=sums)
        self._known[name] = segment
        self._entry.added.append(segment)
        self.bytes_added += size
        return PieceId(name, 0)

    def add_bad(self, path: str, start: int, raw: bytes, reason: str) -> None:
        """Add a record that is no row; kept as it is."""
        self._entry.bad.append(SpooledBadRow(reason, path, start, raw.decode("latin-1")))

    def set_file(self, path: str, state: FileState | None) -> None:
        """Set the state of a file after this position; None forgets the file."""
        self._entry.files[path] = state

    def file(self, path: str) -> FileState | None:
        """The state of a file, including what this draft says about it."""
        return self._entry.files[path] if path in self._entry.files else self._spool.files.get(path)

    def says(self, path: str) -> bool:
        """Whether this draft has a state for the file."""
        return path in self._entry.files

    def rows(self, pieces: Sequence[PieceId]) -> int:
        """The number of records in the pieces."""
        current = resolve(pieces, self._entry.moved)
        return sum(self._known[piece.segment].pieces[piece.number].rows for piece in current)

    def records(self, pieces: Sequence[PieceId]) -> list[bytes]:
        """The records of pieces that are already in the spool."""
        found: list[bytes] = []
        text: SegmentText | None = None
        for piece in resolve(pieces, self._entry.moved):
            if text is None or text.segment.name != piece.segment:
                text = SegmentText(self._spool, self._known[piece.segment])
            found += text.records(piece.number)
        return found

    def first_records(self, pieces: Sequence[PieceId], count: int) -> list[bytes]:
        """The first `count` records of the pieces; no more pieces are read than needed."""
        found: list[bytes] = []
        for piece in resolve(pieces, self._entry.moved):
            if len(found) >= count:
                break
            found += self.records([piece])
        return found[:count]

    def last_records(self, pieces: Sequence[PieceId], count: int) -> list[bytes]:
        """The last `count` records of the pieces; no more pieces are read than needed."""
        found: list[bytes] = []
        for piece in reversed(list(resolve(pieces, self._entry.moved))):
            if len(found) >= count:
                break
            found = self.records([piece]) + found
        return found[-count:]

    def textual(self, pieces: Sequence[PieceId]) -> bool:
        """Whether the pieces are text, so that `records` can return them."""
        return all(self._known[piece.segment].kind == "text" for piece in resolve(pieces, self._entry.moved))

    @property
    def bad_count(self) -> int:
        """The number of bad records so far."""
        return len(self._entry.bad)

    @property
    def extent(self) -> tuple[int, ...]:
        """A measure that changes with everything added to, or removed from, the draft."""
        entry = self._entry
        return self.bytes_added, len(entry.added), len(entry.removed), len(entry.replaced), len(entry.bad)

    # --- taking away ---------------------------------------------------------------------------------

    def cut(
        self, pieces: Sequence[PieceId], ranges: Sequence[tuple[int, int]], retract: bool = True
    ) -> list[list[PieceId]]:
        """Cut ranges of records, by number and in order, out of a file; returns what is left between them.

        An empty range only splits. Without `retract` the rows stay, but no longer belong to the file.
        """
        firsts, lasts = [first for first, _ in ranges], [last for _, last in ranges]
        current = list(resolve(pieces, self._entry.moved))
        sizes = [self._known[piece.segment].pieces[piece.number].rows for piece in current]
        begins = list(accumulate(sizes, initial=0))
        # Segments are immutable, so a segment that is cut is replaced by parts.
        # All ranges are first mapped to pieces and collected by segment, so
        # that each segment is rewritten once however many ranges cut it.
        cuts: dict[str, dict[int, list[tuple[int, int]]]] = {}
        for piece, begin, rows in zip(current, begins, sizes, strict=False):
            touching = range(bisect_left(lasts, begin), bisect_right(firsts, begin + rows))
            inside = [(max(firsts[n] - begin, 0), min(lasts[n] - begin, rows)) for n in touching]
            inside = [(low, high) for low, high in inside if low < high or 0 < low < rows]
            if inside:
                cuts.setdefault(piece.segment, {})[piece.number] = inside
        kept = {name: self._cut_segment(self._known[name], inside, retract) for name, inside in cuts.items()}
        left: list[list[PieceId]] = [[] for _ in range(len(ranges) + 1)]
        for piece, begin in zip(current, begins, strict=False):
            if piece.number in cuts.get(piece.segment, ()):
                for at, target in kept[piece.segment][piece.number]:
                    left[bisect_right(lasts, begin + at)].append(target)
            else:
                left[bisect_right(lasts, begin)] += resolve([piece], self._entry.moved)
        return left

    def _cut_segment(
        self, segment: Segment, ranges: dict[int, list[tuple[int, int]]], retract: bool
    ) -> dict[int, list[tuple[int, PieceId]]]:
        """Split a segment into kept and cut records; returns the kept runs of each cut piece.

        With `retract`, all kept records form one part and all cut ones another, which is then removed. A
        stream cannot retract: its cut records stay, in parts by place, so that the order of records is
        preserved.
        """
        kept: dict[int, list[tuple[int, PieceId]]] = {number: [] for number in ranges}
        runs = list(_runs(segment, ranges))
        if all(run.doomed for run in runs):
            if retract:
                self._entry.removed.append(segment.name)
            return kept
        moves: list[list[PieceId]] = [[] for _ in segment.pieces]
        parts: list[Segment] = []
        reader = SegmentText(self._spool, segment)
        for doomed, group in _by_fate(runs) if retract else _by_place(runs):
            part = self._write_part(segment, reader, group)
            parts.append(part)
            if doomed and retract:
                self._entry.removed.append(part.name)
            for number, run in enumerate(() if doomed else group):
                target = PieceId(part.name, number)
                moves[run.piece].append(target)
                if run.piece in kept:
                    kept[run.piece].append((run.begin, target))
        self._entry.replaced[segment.name] = parts
        self._entry.moved[segment.name] = moves
        return kept

    def _write_part(self, segment: Segment, reader: SegmentText, group: Sequence[_Run]) -> Segment:
        buffer = _Buffer(self._spool.new_name("txt"), segment.columns, segment.separator, plain=segment.plain)
        for run in group:
            text, starts = reader.slice(run.piece, run.begin, run.end)
            old = segment.pieces[run.piece]
            start = int(starts[0]) if len(starts) else old.start
            line_end = 0 if segment.indexed else old.line_end
            piece = Piece(old.path, start, run.end - run.begin, len(text), line_end)
            buffer.add(text, piece, starts if segment.indexed else None)
            if segment.timed:
                buffer.instants.append(reader.instants(run.piece)[run.begin : run.end])
        return self.write(buffer, segment.at_micros)

    # --- ending --------------------------------------------------------------------------------------

    def commit(self) -> bool:
        """Make the draft the next position; False when it is empty."""
        for buffer in self._buffers.values():
            self._flush(buffer)
        self._buffers.clear()
        entry = self._entry
        # A segment may have been split after another file that shares it was handled.
        entry.files = {
            path: state and state.with_pieces(tuple(resolve(state.pieces, entry.moved)))
            for path, state in entry.files.items()
        }
        if not (entry.added or entry.removed or entry.replaced or entry.files or entry.bad):
            return False
        with storing(self._spool.folder):
            self._spool.append(entry)
        return True

    def abandon(self) -> None:
        """Delete the written segments; the spool is unchanged."""
        self._written.abandon()

    def _flush(self, buffer: _Buffer) -> None:
        if buffer.pieces:
            self._entry.added.append(self.write(buffer, self._at_micros))

    def write(self, buffer: _Buffer, at_micros: int) -> Segment:
        """One segment, in files of its own; nothing names it before `commit`."""
        indexed = any(starts is not None for starts in buffer.starts)
        rows = sum(piece.rows for piece in buffer.pieces)
        place = self._spool.place(buffer.name)
        sums = [self._save(place, buffer.texts)]
        if indexed:
            sums.append(self._write_index(buffer))
        if buffer.instants:
            instants = [packed(np.concatenate(buffer.instants))]
            sums.append(self._save(self._spool.place(buffer.name, INSTANTS), instants))
        segment = Segment(
            buffer.name,
            "text",
            rows,
            buffer.size,
            at_micros,
            tuple(buffer.pieces),
            buffer.columns,
            buffer.separator,
            indexed,
            timed=bool(buffer.instants),
            plain=buffer.plain,
            sums=tuple(sums),
        )
        self._known[segment.name] = segment
        return segment

    def _write_index(self, buffer: _Buffer) -> int:
        parts = []
        for text, piece, starts in zip(buffer.texts, buffer.pieces, buffer.starts, strict=True):
            if starts is None:
                records = split_text(text, buffer.separator)
                starts = piece.start + record_positions(records, piece.line_end)
            parts.append(starts)
        text = np.concatenate(parts).astype("<i8").tobytes()
        return self._save(self._spool.place(buffer.name, INDEX), [text])

    def _save(self, path: Path, parts: Iterable[bytes]) -> int:
        with storing(path):
            return self._written.save(path, parts)


@dataclass(frozen=True)
class _Run:
    """Consecutive records of one piece that are all kept, or all cut."""

    piece: int
    begin: int
    end: int
    doomed: bool


def _runs(segment: Segment, ranges: dict[int, list[tuple[int, int]]]) -> Iterator[_Run]:
    for number, piece in enumerate(segment.pieces):
        position = 0
        for begin, end in [*ranges.get(number, ()), (piece.rows, piece.rows)]:
            if position < begin:
                yield _Run(number, position, begin, doomed=False)
            if begin < end:
                yield _Run(number, begin, end, doomed=True)
            position = end


def _by_fate(runs: Sequence[_Run]) -> Iterator[tuple[bool, list[_Run]]]:
    for doomed in (False, True):
        group = [run for run in runs if run.doomed == doomed]
        if group:
            yield doomed, group


def _by_place(runs: Sequence[_Run]) -> Iterator[tuple[bool, list[_Run]]]:
    for doomed, group in groupby(runs, key=lambda run: run.doomed):
        yield doomed, list(group)
