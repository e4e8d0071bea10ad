"""Files that were edited: retracts and adds only the records that differ."""

from __future__ import annotations

from bisect import bisect_left
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING

from velostream.connectors.files.read.binary import copy_binary
from velostream.connectors.files.spool.content import Blocks, digest
from velostream.connectors.files.spool.segments import FileState, Identity, PieceId
from velostream.connectors.files.watch.differences import Hunk, differences
from velostream.connectors.files.watch.headers import Header, read_header
from velostream.errors import SourceConfigError
from velostream.formats.compression import utf8_chunks
from velostream.formats.json.documents import holds_document, split_document
from velostream.formats.json.lines import set_tails_aside
from velostream.formats.json.numbers import keep_digits
from velostream.formats.records import NEWLINE, Records, judged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.connectors.files.spool.draft import Draft
    from velostream.connectors.files.watch.look import Look

COMPARED_BYTES = 512 * 1024 * 1024
"""Above this size an edited file is read again as a whole instead of being compared in memory."""
_BLOCK = 4 * 1024 * 1024
_REPORTED = 1000
_NO_STATE = FileState(Identity(0, 0, 0, 0))


class Rewriter:
    """Brings the spool to the new content of a file, with the smallest change of records."""

    def __init__(self, table: bool, segment_size: int) -> None:
        self._table = table
        self._segment_size = segment_size

    def edited(self, look: Look, state: FileState, draft: Draft) -> FileState:
        """The state of a line-oriented file that was changed within the part already read."""
        if max(look.identity.size, state.consumed) > COMPARED_BYTES:
            if not self._table and not self._begins_anew(look, state, draft):
                raise _too_large(look.path, state)
            look.check_still()
            return self._start_again(look, state, draft)
        raw = look.content()
        header = read_header(look.layout, raw, final=True)
        if header is None:
            # Empty, or its first line may still grow: it starts from scratch, perhaps with other columns.
            return self._start_again(look, state, draft)
        records = look.layout.split(raw[header.data_start :], final=True)
        pieces = self._replace(look.path, state, header, records, draft)
        return FileState(
            look.identity,
            consumed=len(raw),
            settled=header.data_start + records.settled,
            provisional=records.provisional,
            columns=header.columns,
            blocks=_blocks(raw),
            pieces=pieces,
        )

    def _start_again(self, look: Look, state: FileState, draft: Draft) -> FileState:
        every = [(0, draft.rows(state.pieces))]
        self.take_back(look.path, state.pieces, every, draft, look.identity.size)
        return FileState(look.identity)

    def _begins_anew(self, look: Look, state: FileState, draft: Draft) -> bool:
        """Whether the file has none of the records that were read, as after truncating a large one."""
        if not state.pieces:
            return True
        if look.identity.size > COMPARED_BYTES:
            return False
        raw = look.content()
        header = read_header(look.layout, raw, final=True)
        if header is None:
            return True
        new = set(look.layout.split(raw[header.data_start :], final=True).as_list())
        return all(new.isdisjoint(draft.records([piece])) for piece in state.pieces)

    def shortened(self, look: Look, state: FileState, draft: Draft) -> bool:
        """Whether a line-oriented file is a prefix of what was read of it."""
        if look.identity.size >= state.consumed or look.identity.size > COMPARED_BYTES:
            return False
        raw = look.content()
        header = read_header(look.layout, raw, final=False)
        if header is None:
            return True
        records = look.layout.split(raw[header.data_start :], final=False)
        known = draft.first_records(state.pieces, records.rows + 1)
        rest = raw[header.data_start + records.consumed :]
        following = known[records.rows] if records.rows < len(known) else b""
        return (
            header.columns == state.columns
            and not records.bad
            and records.as_list() == known[: records.rows]
            and following.startswith(rest.rstrip(b"\r\n"))
        )

    def whole(self, look: Look, state: FileState | None, draft: Draft) -> FileState:
        """The state of a file that can only be read as a whole."""
        raw = look.content()
        blocks = _blocks(raw)
        old = state or _NO_STATE
        if look.layout.binary:
            columns, pieces = self._binary(look, raw, old, blocks, draft)
        else:
            columns, pieces = self._text(look, raw, old, draft)
        return FileState(
            look.identity, len(raw), len(raw), whole=True, columns=columns, blocks=blocks, pieces=pieces
        )

    def _text(
        self, look: Look, raw: bytes, old: FileState, draft: Draft
    ) -> tuple[tuple[str, ...] | None, tuple[PieceId, ...]]:
        json = look.layout.format == "json"
        document = holds_document if json else (lambda _: False)
        content = b"".join(utf8_chunks(BytesIO(raw), look.layout.packed, document=document))
        found = None
        if json and holds_document(content):
            found = split_document(content)
        if found is not None:
            header = Header(None, 0)
            records = keep_digits(set_tails_aside(judged(*found, len(content))))
        else:
            ended = content if content.endswith(NEWLINE) else content + NEWLINE
            header = read_header(look.layout, ended, final=True) or Header(None, len(content))
            records = look.layout.split(content[header.data_start :], final=True)
        return header.columns, self._replace(look.path, old, header, records, draft)

    def _binary(
        self, look: Look, raw: bytes, old: FileState, blocks: Blocks, draft: Draft
    ) -> tuple[tuple[str, ...] | None, tuple[PieceId, ...]]:
        if old.blocks == blocks and old.pieces:
            return old.columns, old.pieces
        added = copy_binary(look.path, look.layout.format, raw, draft)
        self.take_back(look.path, old.pieces, [(0, draft.rows(old.pieces))], draft, 0)
        return added

    def _replace(
        self, path: str, old: FileState, header: Header, records: Records, draft: Draft
    ) -> tuple[PieceId, ...]:
        if header.bad is not None and header.columns != old.columns:
            draft.add_bad(path, header.bad.start, header.bad.raw, header.bad.reason)
        before = draft.records(old.pieces)
        after = records.as_list()
        hunks = [Hunk(0, len(before), 0, len(after))]
        if before and old.columns == header.columns:
            hunks = differences(before, after)
        ranges = [(hunk.first, hunk.last) for hunk in hunks]
        left = self.take_back(path, old.pieces, ranges, draft, old.consumed)
        pieces = [*left[0]]
        new_parts = records.parts(after, [(hunk.begin, hunk.end) for hunk in hunks])
        for new, kept in zip(new_parts, left[1:], strict=True):
            pieces += [
                draft.add(path, header.columns, portion, header.data_start)
                for portion in new.portions(self._segment_size)
                if portion.rows
            ]
            pieces += kept
        self._report_bad(path, header.data_start, records, hunks, draft)
        return tuple(pieces)

    def _report_bad(
        self, path: str, base: int, records: Records, hunks: Sequence[Hunk], draft: Draft
    ) -> None:
        """Report bad records within the hunks; those outside were reported when they were first read."""
        if not records.bad:
            return
        starts = records.positions()
        rows = records.rows
        places = [(hunk.begin, hunk.end) for hunk in hunks] or [(rows, rows)]
        lows = [int(starts[begin - 1]) if begin else -1 for begin, _ in places]
        highs = [int(starts[end]) if end < rows else records.consumed for _, end in places]
        for bad in records.bad:
            nearest = bisect_left(lows, bad.start) - 1
            if nearest >= 0 and bad.start < highs[nearest]:
                draft.add_bad(path, base + bad.start, bad.raw, bad.reason)

    def take_back(
        self,
        path: str,
        pieces: Sequence[PieceId],
        ranges: Sequence[tuple[int, int]],
        draft: Draft,
        position: int,
    ) -> list[list[PieceId]]:
        """Retract ranges of a file's records; returns what is left between them.

        A stream keeps the rows and reports them as bad rows instead.
        """
        if not self._table and any(first < last for first, last in ranges):
            self._report_lost(path, pieces, ranges, draft, position)
        return draft.cut(pieces, ranges, retract=self._table)

    def _report_lost(
        self,
        path: str,
        pieces: Sequence[PieceId],
        ranges: Sequence[tuple[int, int]],
        draft: Draft,
        position: int,
    ) -> None:
        """Report the rows that a stream keeps although the file no longer has them, at most 1,000 singly."""
        reason = f"file changed before byte {position}; a stream cannot retract rows"
        lost = sum(last - first for first, last in ranges)
        shown: list[bytes] = []
        if draft.textual(pieces):
            records = draft.first_records(pieces, _reach(ranges, _REPORTED))
            shown = list(islice((r for first, last in ranges for r in records[first:last]), _REPORTED))
        for record in shown:
            draft.add_bad(path, position, record, reason)
        if lost > len(shown):
            more = f"{lost - len(shown)} {'more ' if shown else ''}rows of it are not shown"
            draft.add_bad(path, position, b"", f"{reason}; {more}")


def _reach(ranges: Sequence[tuple[int, int]], count: int) -> int:
    """How many records must be read to reach the first `count` records of the ranges."""
    end = 0
    for first, last in ranges:
        if not count:
            break
        end = min(last, first + count)
        count -= end - first
    return end


def _too_large(path: str, state: FileState) -> SourceConfigError:
    return SourceConfigError(
        f"{path} was changed before byte {state.consumed}, "
        f"and is too large to compare, so that a stream cannot tell which of its rows are new",
        hint="put it back as it was and append to it, or write new rows to a new file beside it "
        f"(files of up to {COMPARED_BYTES // 2**20} MiB are compared); a table follows such changes",
    )


def _blocks(raw: bytes) -> Blocks:
    return tuple(
        (len(block), digest(block))
        for block in (raw[start : start + _BLOCK] for start in range(0, len(raw), _BLOCK))
    )
