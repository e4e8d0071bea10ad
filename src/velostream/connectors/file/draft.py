"""One position of the spool in the making: segments are written as it goes, the journal entry at the end."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from velostream.connectors.file.instants import packed
from velostream.connectors.file.segment_text import SegmentText
from velostream.connectors.file.segments import FileState, Piece, PieceId, Segment, SpooledBadRow
from velostream.connectors.file.spool import Entry, Spool, resolve
from velostream.errors import SourceStorageError
from velostream.formats.records import Records, record_positions, split_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Positions = NDArray[np.int64]

Columns = tuple[str, ...] | None


@dataclass
class _Buffer:
    """Pieces that will be one segment."""

    name: str
    columns: Columns
    separator: bytes
    texts: list[bytes] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    starts: list[Positions | None] = field(default_factory=list)
    instants: list[Positions] = field(default_factory=list)
    """Of each piece, if they are not all those of the segment."""
    size: int = 0

    def add(self, text: bytes, piece: Piece, starts: Positions | None) -> PieceId:
        self.texts.append(text)
        self.pieces.append(piece)
        self.starts.append(starts)
        self.size += len(text)
        return PieceId(self.name, len(self.pieces) - 1)


class Draft:
    """Collects what one look at the files found. Either `commit` or `abandon` ends it."""

    def __init__(self, spool: Spool, at_micros: int, segment_size: int) -> None:
        self._spool = spool
        self._at_micros = at_micros
        self._segment_size = segment_size
        self._entry = Entry(spool.position + 1)
        self._buffers: dict[tuple[Columns, bytes], _Buffer] = {}
        self._written: list[Path] = []
        self._known = dict(spool.live)
        self.bytes_added = 0

    # --- adding --------------------------------------------------------------------------------------

    def add(self, path: str, columns: Columns, records: Records, base: int) -> PieceId:
        """Records of a file that begin at its byte `base`; small runs share a segment."""
        key = (columns, records.separator)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.size + len(records.text) > self._segment_size:
            if buffer is not None:
                self._flush(buffer)
            buffer = self._buffers[key] = _Buffer(self._spool.new_name("txt"), columns, records.separator)
        starts = None if records.starts is None else records.starts + base
        first = base if starts is None or not len(starts) else int(starts[0])
        piece = Piece(path, first, records.rows, len(records.text), records.line_end if starts is None else 0)
        self.bytes_added += len(records.text)
        return buffer.add(records.text, piece, starts)

    def add_binary(
        self, path: str, kind: str, rows: int, columns: Columns, write: Callable[[Path], None]
    ) -> PieceId:
        """A whole file in a binary format, which `write` puts at the path it is given."""
        name = self._spool.new_name(kind)
        target = self._spool.segment_folder / name
        with self._writing(target):
            write(target)
            _sync(target)
        size = target.stat().st_size
        piece = Piece(path, 0, rows, size)
        segment = Segment(name, kind, rows, size, self._at_micros, (piece,), columns)
        self._known[name] = segment
        self._entry.added.append(segment)
        self.bytes_added += size
        return PieceId(name, 0)

    def add_bad(self, path: str, start: int, raw: bytes, reason: str) -> None:
        """A record that is no row; kept as it is."""
        self._entry.bad.append(SpooledBadRow(reason, path, start, raw.decode("latin-1")))

    def set_file(self, path: str, state: FileState | None) -> None:
        """How far a file is after this; None forgets it."""
        self._entry.files[path] = state

    def file(self, path: str) -> FileState | None:
        """How far a file is, what this draft says about it included."""
        return self._entry.files[path] if path in self._entry.files else self._spool.files.get(path)

    def rows(self, pieces: Sequence[PieceId]) -> int:
        """How many records some pieces hold."""
        current = resolve(pieces, self._entry.moved)
        return sum(self._known[piece.segment].pieces[piece.number].rows for piece in current)

    def records(self, pieces: Sequence[PieceId]) -> list[bytes]:
        """The records of some pieces that are in the spool already."""
        found: list[bytes] = []
        text: SegmentText | None = None
        for piece in resolve(pieces, self._entry.moved):
            if text is None or text.segment.name != piece.segment:
                text = SegmentText(self._spool, self._known[piece.segment])
            found += text.records(piece.number)
        return found

    def textual(self, pieces: Sequence[PieceId]) -> bool:
        """Whether some pieces are text, so that `records` can give them."""
        return all(self._known[piece.segment].kind == "text" for piece in resolve(pieces, self._entry.moved))

    @property
    def bad_count(self) -> int:
        """How many bad records it has so far."""
        return len(self._entry.bad)

    # --- taking away ---------------------------------------------------------------------------------

    def cut(
        self, pieces: Sequence[PieceId], first: int, last: int, retract: bool = True
    ) -> tuple[tuple[PieceId, ...], tuple[PieceId, ...]]:
        """Take the records from number `first` up to `last` out of a file; what is left before and after.

        Without `retract` the rows stay, they only no longer belong to the file.
        """
        doomed: dict[str, dict[int, tuple[int, int]]] = {}
        kept_before: list[PieceId] = []
        kept_after: list[PieceId] = []
        current = list(resolve(pieces, self._entry.moved))
        position = 0
        for piece in current:
            rows = self._known[piece.segment].pieces[piece.number].rows
            begin, end = max(first - position, 0), min(last - position, rows)
            if begin < end:
                doomed.setdefault(piece.segment, {})[piece.number] = (begin, end)
            position += rows
        remains = {
            name: self._cut_segment(self._known[name], ranges, retract) for name, ranges in doomed.items()
        }
        position = 0
        for piece in current:
            rows = self._known[piece.segment].pieces[piece.number].rows
            if piece.number in doomed.get(piece.segment, ()):
                before, after = remains[piece.segment][piece.number]
                kept_before += before
                kept_after += after
            else:
                side = kept_before if position + rows <= first else kept_after
                side += resolve([piece], self._entry.moved)
            position += rows
        return tuple(kept_before), tuple(kept_after)

    def _cut_segment(
        self, segment: Segment, ranges: dict[int, tuple[int, int]], retract: bool
    ) -> dict[int, tuple[list[PieceId], list[PieceId]]]:
        """Split a segment around some records; what is left of each cut piece, before and after."""
        remains: dict[int, tuple[list[PieceId], list[PieceId]]] = {k: ([], []) for k in ranges}
        runs = list(_runs(segment, ranges))
        if all(run.doomed for run in runs):
            if retract:
                self._entry.removed.append(segment.name)
            return remains
        moves: list[list[PieceId]] = [[] for _ in segment.pieces]
        parts: list[Segment] = []
        reader = SegmentText(self._spool, segment)
        for order, (doomed, group) in enumerate(_grouped(runs)):
            part = self._write_part(segment, order, reader, group)
            parts.append(part)
            if doomed and retract:
                self._entry.removed.append(part.name)
            for number, run in enumerate(() if doomed else group):
                target = PieceId(part.name, number)
                moves[run.piece].append(target)
                if run.piece in ranges:
                    remains[run.piece][0 if run.end <= ranges[run.piece][0] else 1].append(target)
        self._entry.replaced[segment.name] = parts
        self._entry.moved[segment.name] = moves
        return remains

    def _write_part(
        self, segment: Segment, order: int, reader: SegmentText, group: Sequence[_Run]
    ) -> Segment:
        # Parts sort where the whole did, so that names still tell which records came first.
        name = f"{segment.name.removesuffix('.txt')}-{order:04d}.txt"
        buffer = _Buffer(name, segment.columns, segment.separator)
        for run in group:
            text, starts = reader.slice(run.piece, run.begin, run.end)
            old = segment.pieces[run.piece]
            start = int(starts[0]) if len(starts) else old.start
            line_end = 0 if segment.indexed else old.line_end
            piece = Piece(old.path, start, run.end - run.begin, len(text), line_end)
            buffer.add(text, piece, starts if segment.indexed else None)
            if segment.timed:
                buffer.instants.append(reader.instants(run.piece)[run.begin : run.end])
        return self._write(buffer, segment.at_micros)

    # --- ending --------------------------------------------------------------------------------------

    def commit(self) -> bool:
        """Make it the next position; False when there was nothing to say."""
        for buffer in self._buffers.values():
            self._flush(buffer)
        self._buffers.clear()
        entry = self._entry
        # A segment may have been split after a file that shares it was dealt with.
        entry.files = {
            path: state and state.with_pieces(tuple(resolve(state.pieces, entry.moved)))
            for path, state in entry.files.items()
        }
        if not (entry.added or entry.removed or entry.replaced or entry.files or entry.bad):
            return False
        with _naming(self._spool.folder):
            self._spool.append(entry)
        return True

    def abandon(self) -> None:
        """Delete what was written; the spool is as before."""
        for path in self._written:
            path.unlink(missing_ok=True)

    def _flush(self, buffer: _Buffer) -> None:
        if buffer.pieces:
            self._entry.added.append(self._write(buffer, self._at_micros))

    def _write(self, buffer: _Buffer, at_micros: int) -> Segment:
        indexed = any(starts is not None for starts in buffer.starts)
        rows = sum(piece.rows for piece in buffer.pieces)
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
        )
        self._save(self._spool.path(segment), buffer.texts)
        if indexed:
            self._write_index(segment, buffer)
        if buffer.instants:
            self._save(self._spool.instants_path(segment), [packed(np.concatenate(buffer.instants))])
        self._known[segment.name] = segment
        return segment

    def _write_index(self, segment: Segment, buffer: _Buffer) -> None:
        parts = []
        for text, piece, starts in zip(buffer.texts, buffer.pieces, buffer.starts, strict=True):
            if starts is None:
                records = split_text(text, buffer.separator)
                starts = piece.start + record_positions(records, piece.line_end)
            parts.append(starts)
        self._save(self._spool.index_path(segment), [np.concatenate(parts).astype("<i8").tobytes()])

    def _save(self, path: Path, parts: Iterable[bytes]) -> None:
        with self._writing(path), path.open("wb") as out:
            out.writelines(parts)
            out.flush()
            os.fsync(out.fileno())

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        self._written.append(path)
        with _naming(path):
            yield


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turns a failure to write into an error that names the path."""
    try:
        yield
    except OSError as exc:
        reason = (exc.strerror or str(exc)).lower()
        raise SourceStorageError(
            f"{path} cannot be written: {reason}",
            hint="make room on the disk of the data directory; reading goes on by itself",
        ) from exc


@dataclass(frozen=True)
class _Run:
    """Records of one piece that share a fate."""

    piece: int
    begin: int
    end: int
    doomed: bool


def _runs(segment: Segment, ranges: dict[int, tuple[int, int]]) -> Iterator[_Run]:
    for number, piece in enumerate(segment.pieces):
        begin, end = ranges.get(number, (piece.rows, piece.rows))
        for low, high, doomed in ((0, begin, False), (begin, end, True), (end, piece.rows, False)):
            if low < high:
                yield _Run(number, low, high, doomed)


def _grouped(runs: Sequence[_Run]) -> Iterator[tuple[bool, list[_Run]]]:
    group: list[_Run] = []
    for run in runs:
        if group and group[0].doomed != run.doomed:
            yield group[0].doomed, group
            group = []
        group.append(run)
    if group:
        yield group[0].doomed, group


def _sync(path: Path) -> None:
    with path.open("rb") as written:
        os.fsync(written.fileno())
