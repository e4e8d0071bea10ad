"""Files that were not only appended to: what differs is taken back and added, nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from velostream.connectors.file.binary import copy_binary
from velostream.connectors.file.content import Blocks, digest, read_at
from velostream.connectors.file.headers import Header, read_header
from velostream.connectors.file.segments import FileState, Identity, PieceId
from velostream.formats.encodings import utf8_chunks
from velostream.formats.json_documents import holds_document, split_document
from velostream.formats.json_lines import set_tails_aside
from velostream.formats.json_numbers import keep_digits
from velostream.formats.records import NEWLINE, Records, join_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.connectors.file.draft import Draft
    from velostream.connectors.file.layout import Layout

COMPARED_BYTES = 512 * 1024 * 1024
"""Above this size an edited file is read again as a whole instead of being compared in memory."""
_BLOCK = 4 * 1024 * 1024
_REPORTED = 1000
_NO_STATE = FileState(Identity(0, 0, 0, 0))


class Rewriter:
    """Brings the spool to the new content of a file by the smallest change of records."""

    def __init__(self, table: bool, segment_size: int) -> None:
        self._table = table
        self._segment_size = segment_size

    def edited(
        self, path: str, identity: Identity, layout: Layout, stream: IO[bytes], state: FileState, draft: Draft
    ) -> FileState:
        """The state of a line-by-line file after it was changed before the place it was read to."""
        if identity.size > COMPARED_BYTES:
            self.take_back(path, state.pieces, 0, draft.rows(state.pieces), draft, identity.size)
            return FileState(identity)
        raw = read_at(stream, 0, identity.size)
        header = read_header(layout, raw, final=True)
        if header is None:
            header = Header(state.columns, len(raw))
        records = layout.split(raw[header.data_start :], final=True)
        pieces = self._replace(path, state, header, records, draft)
        return FileState(
            identity,
            consumed=len(raw),
            settled=header.data_start + records.settled,
            provisional=records.provisional,
            columns=header.columns,
            blocks=_blocks(raw),
            pieces=pieces,
        )

    def whole(
        self,
        path: str,
        identity: Identity,
        layout: Layout,
        stream: IO[bytes],
        state: FileState | None,
        draft: Draft,
    ) -> FileState:
        """The state of a file that can only be read from its beginning."""
        raw = read_at(stream, 0, identity.size)
        blocks = _blocks(raw)
        old = state or _NO_STATE
        if layout.binary:
            columns, pieces = self._binary(path, layout, old, blocks, draft)
        else:
            columns, pieces = self._text(path, layout, stream, old, draft)
        return FileState(
            identity, len(raw), len(raw), whole=True, columns=columns, blocks=blocks, pieces=pieces
        )

    def _text(
        self, path: str, layout: Layout, stream: IO[bytes], old: FileState, draft: Draft
    ) -> tuple[tuple[str, ...] | None, tuple[PieceId, ...]]:
        stream.seek(0)
        content = b"".join(utf8_chunks(stream, layout.packed))
        if layout.format == "json" and holds_document(content):
            header = Header(None, 0)
            records = _document(content)
        else:
            ended = content if content.endswith(NEWLINE) else content + NEWLINE
            header = read_header(layout, ended, final=True) or Header(None, len(content))
            records = layout.split(content[header.data_start :], final=True)
        return header.columns, self._replace(path, old, header, records, draft)

    def _binary(
        self, path: str, layout: Layout, old: FileState, blocks: Blocks, draft: Draft
    ) -> tuple[tuple[str, ...] | None, tuple[PieceId, ...]]:
        if old.blocks == blocks and old.pieces:
            return old.columns, old.pieces
        added = copy_binary(Path(path), layout.format, draft)
        self.take_back(path, old.pieces, 0, draft.rows(old.pieces), draft, 0)
        return added

    def _replace(
        self, path: str, old: FileState, header: Header, records: Records, draft: Draft
    ) -> tuple[PieceId, ...]:
        before = draft.records(old.pieces)
        same_columns = old.columns == header.columns
        after = records.as_list() if before else []
        first = _common(before, after) if same_columns else 0
        room = min(len(before), len(after)) - first
        last = _common(before[: -room - 1 : -1], after[: -room - 1 : -1]) if same_columns and room > 0 else 0
        left: tuple[PieceId, ...] = old.pieces
        right: tuple[PieceId, ...] = ()
        doomed = len(before) - last
        if first < len(before):
            left, right = self.take_back(path, old.pieces, first, doomed, draft, old.consumed)
        new = records.part(first, records.rows - last)
        added = [
            draft.add(path, header.columns, portion, header.data_start)
            for portion in new.portions(self._segment_size)
            if portion.rows
        ]
        self._report_bad(path, header.data_start, records, first, records.rows - last, draft)
        return (*left, *added, *right)

    def _report_bad(self, path: str, base: int, records: Records, first: int, end: int, draft: Draft) -> None:
        """Bad records among the new ones; those elsewhere were reported when they came."""
        if not records.bad:
            return
        starts = records.positions()
        low = int(starts[first - 1]) if first else -1
        high = int(starts[end]) if end < records.rows else records.consumed
        for bad in records.bad:
            if low < bad.start < high:
                draft.add_bad(path, base + bad.start, bad.raw, bad.reason)

    def take_back(
        self, path: str, pieces: Sequence[PieceId], first: int, last: int, draft: Draft, position: int
    ) -> tuple[tuple[PieceId, ...], tuple[PieceId, ...]]:
        """Remove some records of a file; a stream keeps the rows and reports them instead."""
        if not self._table:
            lost = draft.records(pieces)[first:last] if draft.textual(pieces) else []
            reason = f"file changed before byte {position}; a stream cannot take rows back"
            for record in lost[:_REPORTED]:
                draft.add_bad(path, position, record, reason)
        return draft.cut(pieces, first, last, retract=self._table)


def _document(content: bytes) -> Records:
    records, starts = split_document(content)
    text, separator = join_records(records)
    positions = np.array(starts, dtype=np.int64)
    size = len(content)
    found = Records(text, len(records), size, separator, 0, positions, settled=size)
    return keep_digits(set_tails_aside(found))


def _blocks(raw: bytes) -> Blocks:
    return tuple(
        (len(block), digest(block))
        for block in (raw[start : start + _BLOCK] for start in range(0, len(raw), _BLOCK))
    )


def _common(left: Sequence[bytes], right: Sequence[bytes]) -> int:
    """How many records from the beginning are the same."""
    for number, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return number
    return min(len(left), len(right))
