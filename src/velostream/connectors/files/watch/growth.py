"""Files that grow: reads the records appended to them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from velostream.connectors.files.spool.content import digest, extended, read_at
from velostream.connectors.files.watch.headers import read_header
from velostream.formats.compression import LONGEST_RECORD, too_long

if TYPE_CHECKING:
    from velostream.connectors.files.spool.draft import Draft
    from velostream.connectors.files.spool.segments import FileState, PieceId
    from velostream.connectors.files.watch.edits import Rewriter
    from velostream.connectors.files.watch.look import Look
    from velostream.formats.records import Records

STEP_BYTES = 256 * 1024 * 1024
"""A poll reads at most about this much, so that a long load shows progress."""
HEAD = 64 * 1024
"""Enough bytes of a file to recognise its format."""


class Growth:
    """Reads the records appended to line-oriented files."""

    def __init__(self, rewriter: Rewriter, segment_size: int) -> None:
        self._rewriter = rewriter
        self._segment_size = segment_size

    def take(self, look: Look, state: FileState, draft: Draft) -> FileState:
        """Read the complete records after `state`, and an unfinished last one when the file is quiet."""
        if not state.blocks:
            started = self._start(look, state, draft)
            if started is None:
                return replace(state, identity=look.identity)
            state = started
        size, chunk = look.identity.size, self._segment_size
        while state.settled < size and (state.consumed < size or state.provisional):
            if draft.bytes_added >= STEP_BYTES:
                break
            raw = read_at(look.stream, state.settled, min(chunk, size - state.settled))
            at_end = state.settled + len(raw) >= size
            records = look.layout.split(raw, final=at_end and look.quiet)
            # A record that is longer than the chunk: read more of it, up to the longest that is allowed.
            if not records.consumed and not at_end and chunk < LONGEST_RECORD:
                chunk *= 2
                continue
            if not records.consumed and chunk >= LONGEST_RECORD:
                return self._too_long(look, state, draft)
            # Splitting starts at the provisional records, which were
            # taken before: only what extends beyond them is progress.
            progress = records.consumed > 0 and state.settled + records.consumed >= state.consumed
            if progress:
                state = self._take(look, state, records, raw, draft)
            if at_end or not progress:
                break
        return replace(state, identity=look.identity)

    def _too_long(self, look: Look, state: FileState, draft: Draft) -> FileState:
        """Report once that the file is read no further: a line without an end would fill the memory."""
        if state.damaged is None:
            draft.add_bad(look.path, state.settled, b"", too_long(state.settled))
        return replace(state, identity=look.identity, damaged=look.identity)

    def _start(self, look: Look, state: FileState, draft: Draft) -> FileState | None:
        """The state of a file before its first record; None while its header is incomplete."""
        size = look.identity.size
        head = read_at(look.stream, 0, min(size, HEAD))
        header = read_header(look.layout, head, look.quiet and size <= HEAD)
        if header is None and size > HEAD:
            head = read_at(look.stream, 0, min(size, LONGEST_RECORD))
            header = read_header(look.layout, head, look.quiet)
        if header is None or not size:
            return None
        if header.bad is not None:
            draft.add_bad(look.path, header.bad.start, header.bad.raw, header.bad.reason)
        # Taken from the same bytes: the file may have another header by now.
        taken = head[: header.data_start]
        return replace(
            state,
            consumed=len(taken),
            settled=len(taken),
            columns=header.columns,
            blocks=((len(taken), digest(taken)),) if taken else (),
        )

    def _take(self, look: Look, state: FileState, records: Records, raw: bytes, draft: Draft) -> FileState:
        pieces, known = self._settle_tail(look, state, records, draft)
        new = records.part(known, records.rows)
        if new.rows:
            pieces = (*pieces, draft.add(look.path, state.columns, new, state.settled))
        consumed = state.settled + records.consumed
        for bad in records.bad:
            # A bad record at the former end of the file was reported then, unless it has become longer.
            if state.settled + bad.start + len(bad.raw) > state.consumed:
                draft.add_bad(look.path, state.settled + bad.start, bad.raw, bad.reason)
        fresh = raw[state.consumed - state.settled : records.consumed]
        blocks = extended(look.stream, state.blocks, fresh) if fresh else state.blocks
        return replace(
            state,
            consumed=max(consumed, state.consumed),
            settled=state.settled + records.settled,
            provisional=records.provisional,
            blocks=blocks,
            pieces=pieces,
        )

    def _settle_tail(
        self, look: Look, state: FileState, records: Records, draft: Draft
    ) -> tuple[tuple[PieceId, ...], int]:
        """Keep the provisional records (read without a visible end) that are unchanged; retract the others.

        Returns the file's pieces, and how many of `records` they already hold.
        """
        if not state.provisional:
            return state.pieces, 0
        total = draft.rows(state.pieces)
        tail = draft.last_records(state.pieces, state.provisional)
        new = records.as_list()[: len(tail)]
        same = 0
        while same < len(new) and tail[same] == new[same]:
            same += 1
        if same == len(tail):
            return state.pieces, same
        lost = (total - len(tail) + same, total)
        left = self._rewriter.take_back(look.path, state.pieces, [lost], draft, state.consumed)
        return tuple(left[0]), same
