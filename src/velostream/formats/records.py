"""Splits bytes into records.

A record depends only on the bytes from its beginning on, never on how a file was cut into reads. So reading a
file in one piece or as it grows gives the same records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

NEWLINE = b"\n"
_SEPARATORS = (NEWLINE, b"\x1e", b"\x1f", b"\x1d", b"\x1c", b"\x1e\x1f\n")
_LONGEST_QUOTED = 1024 * 1024
"""A quote that does not close within this many bytes is text; else a stray one would swallow a file."""


@dataclass(frozen=True)
class BadRecord:
    """Bytes that are no record; `start` is their offset in what was split."""

    start: int
    raw: bytes
    reason: str


@dataclass(frozen=True)
class Records:
    """Records found in a run of bytes, each followed by `separator` in `text`.

    `consumed` bytes of the run are processed. Record i began at `starts[i]`, or, without `starts`, right
    after the previous one plus `line_end` bytes. The last `provisional` records ended because the run did,
    not because their end was seen; they began at `settled`.
    """

    text: bytes
    rows: int
    consumed: int
    separator: bytes = NEWLINE
    line_end: int = 1
    starts: NDArray[np.int64] | None = None
    bad: tuple[BadRecord, ...] = ()
    provisional: int = 0
    settled: int = field(default=0)
    plain: bool = False
    """CSV: the delimiter alone separates fields. JSON: each record is exactly one object."""

    def as_list(self) -> list[bytes]:
        """The records one by one."""
        return split_text(self.text, self.separator)

    def part(self, begin: int, end: int) -> Records:
        """Some of the records, with their offsets."""
        if begin == 0 and end == self.rows:
            return self
        records = self.as_list()[begin:end]
        text, separator = join_records(records)
        positions = self.positions()[begin:end]
        return Records(text, len(records), 0, separator, 0, positions, plain=self.plain)

    def parts(self, records: Sequence[bytes], ranges: Iterable[tuple[int, int]]) -> Iterator[Records]:
        """`part` for several ranges; `records` is `as_list`."""
        positions = self.positions()
        for begin, end in ranges:
            if begin == 0 and end == self.rows:
                yield self
                continue
            text, separator = join_records(records[begin:end])
            yield Records(text, end - begin, 0, separator, 0, positions[begin:end], plain=self.plain)

    def portions(self, size: int) -> Iterator[Records]:
        """The same records in portions of about `size` bytes."""
        if len(self.text) <= size:
            yield self
            return
        step = max(1, self.rows * size // len(self.text))
        for begin in range(0, self.rows, step):
            yield self.part(begin, min(begin + step, self.rows))

    def positions(self) -> NDArray[np.int64]:
        """The offset at which each record began."""
        if self.starts is not None:
            return self.starts
        return record_positions(self.as_list(), self.line_end)


def split_text(text: bytes, separator: bytes) -> list[bytes]:
    """The records of a spooled text."""
    return text.split(separator)[:-1] if text else []


def record_positions(records: Sequence[bytes], line_end: int) -> NDArray[np.int64]:
    """The offset of each record when `line_end` bytes follow each."""
    lengths = np.fromiter((len(r) + line_end for r in records), dtype=np.int64, count=len(records))
    starts = np.zeros(len(records), dtype=np.int64)
    np.cumsum(lengths[:-1], out=starts[1:])
    return starts


def join_records(records: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The records as one text, and a separator that occurs in none of them."""
    if not records:
        return b"", NEWLINE
    joined = NEWLINE.join(records)
    if joined.count(NEWLINE) == len(records) - 1:
        return joined + NEWLINE, NEWLINE
    separator = next(s for s in separators() if s not in joined)
    return separator.join(records) + separator, separator


def separators() -> Iterator[bytes]:
    """Ever longer separators, none of whose suffixes is a prefix: no record's end can be mistaken for one."""
    yield from _SEPARATORS[1:]
    for number in count():
        yield b"\x1e%d\x1f\n" % number


def split_records(raw: bytes, *, final: bool, quote: bytes | None = None, delimiter: bytes = b",") -> Records:
    """The complete records at the beginning of `raw`.

    `final`: nothing more is expected now, so the rest is a record too. With a `quote`, a line end inside a
    quoted field does not end the record. Blank lines are skipped; a record that is not UTF-8 is bad.
    """
    fast = _split_plain(raw, final, quote)
    return fast if fast is not None else _split_slowly(raw, final, quote, delimiter)


def _split_plain(raw: bytes, final: bool, quote: bytes | None) -> Records | None:
    """The common case without a loop over records: about 1 GB/s."""
    end = raw.rfind(NEWLINE) + 1
    if final and end != len(raw):
        return None
    text = raw[:end]
    returns = b"\r" in text
    if text.startswith((NEWLINE, b"\r\n")) or b"\n\n" in text or (returns and b"\n\r\n" in text):
        return None
    quoted = quote is not None and quote in text
    if quoted and not _even_quotes(text, quote or b""):
        return None
    line_end = 1
    if returns:
        lines = text.count(NEWLINE)
        if text.count(b"\r\n") != lines or text.count(b"\r") != lines:
            return None
        text, line_end = text.replace(b"\r\n", NEWLINE), 2
    if not text.isascii() and invalid_utf8(text) is not None:
        return None
    plain = not quoted and b"\0" not in text
    return Records(text, text.count(NEWLINE), end, line_end=line_end, settled=end, plain=plain)


def _even_quotes(text: bytes, quote: bytes) -> bool:
    if len(quote) > 1:
        return False
    data = np.frombuffer(text, dtype=np.uint8)
    quotes = np.flatnonzero(data == quote[0])
    lines = np.flatnonzero(data == 10)
    before = np.searchsorted(quotes, lines)
    return not bool((before & 1).any())


def first_record(
    raw: bytes, *, final: bool, quote: bytes | None = None, delimiter: bytes = b","
) -> tuple[bytes, int] | None:
    """The first non-blank record, UTF-8 or not, and the offset after its line end.

    The offset is beyond the end of `raw` when the record has no line end. None while no record is complete.
    """
    position = 0
    while position < len(raw):
        end, _ = _record_end(raw, position, quote, delimiter, final)
        if end is None:
            return None
        record = raw[position:end].removesuffix(b"\r")
        if record.strip(b"\r"):
            return record, end + 1
        position = end + 1
    return None


def judged(records: Sequence[bytes], starts: Sequence[int], consumed: int) -> Records:
    """Records that were found by other means; those that are not UTF-8 are bad."""
    reasons = [invalid_utf8(record) for record in records]
    kept = [number for number, reason in enumerate(reasons) if reason is None]
    bad = (BadRecord(starts[n], records[n], reason) for n, reason in enumerate(reasons) if reason is not None)
    text, separator = join_records([records[number] for number in kept])
    positions = np.array([starts[number] for number in kept], dtype=np.int64)
    return Records(text, len(kept), consumed, separator, 0, positions, bad=tuple(bad), settled=consumed)


def _split_slowly(raw: bytes, final: bool, quote: bytes | None, delimiter: bytes) -> Records:
    records: list[bytes] = []
    starts: list[int] = []
    bad: list[BadRecord] = []
    position, settled, settled_rows = 0, 0, 0
    open_end = False
    while position < len(raw):
        end, closed = _record_end(raw, position, quote, delimiter, final)
        if end is None:
            break
        record, after = raw[position:end].removesuffix(b"\r"), end + 1
        complete = closed and end < len(raw)
        open_end = open_end or not complete
        if record.strip(b"\r"):
            reason = invalid_utf8(record)
            if reason is None:
                records.append(record)
                starts.append(position)
            else:
                bad.append(BadRecord(position, record, reason))
        position = min(after, len(raw))
        if not open_end:
            settled, settled_rows = position, len(records)
    text, separator = join_records(records)
    return Records(
        text,
        len(records),
        position,
        separator=separator,
        line_end=0,
        starts=np.array(starts, dtype=np.int64),
        bad=tuple(bad),
        provisional=len(records) - settled_rows,
        settled=settled,
    )


def _record_end(
    raw: bytes, start: int, quote: bytes | None, delimiter: bytes, final: bool
) -> tuple[int | None, bool]:
    """The end of the record that begins at `start` (its line end), and whether that end is certain."""
    line = raw.find(NEWLINE, start)
    first = len(raw) if line < 0 else line
    if quote is None or raw.count(quote, start, first) % 2 == 0:
        if line < 0:
            return (len(raw), False) if final else (None, False)
        return line, True
    end = _quoted_end(raw, start, quote, delimiter)
    if end == len(raw):
        return (end, False) if final else (None, False)
    if end is not None:
        return end, True
    if len(raw) - start > _LONGEST_QUOTED and line >= 0:
        return line, True
    return (first, False) if final else (None, False)


def _quoted_end(raw: bytes, start: int, quote: bytes, delimiter: bytes) -> int | None:
    """The line end outside quotes that ends the record, or the end of `raw`; None inside an open quote."""
    position = start
    while True:
        if raw.startswith(quote, position):
            closing = _closing_quote(raw, position + len(quote), quote)
            if closing is None:
                return None
            position = closing + len(quote)
        line = raw.find(NEWLINE, position)
        following = raw.find(delimiter, position, line if line >= 0 else len(raw))
        if following < 0:
            return line if line >= 0 else len(raw)
        position = following + len(delimiter)


def _closing_quote(raw: bytes, position: int, quote: bytes) -> int | None:
    limit = position + _LONGEST_QUOTED
    while True:
        found = raw.find(quote, position, limit)
        if found < 0:
            return None
        if not raw.startswith(quote, found + len(quote)):
            return found
        position = found + 2 * len(quote)


def invalid_utf8(record: bytes) -> str | None:
    """Why a record is not UTF-8; None when it is."""
    try:
        record.decode("utf-8")
    except UnicodeDecodeError as exc:
        return f"not valid UTF-8: {exc.reason} at byte {exc.start} of the record"
    return None
