"""The header line of a CSV file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from velostream.formats.compression import UTF8_MARK
from velostream.formats.csv.text import column_names, numbered_names
from velostream.formats.records import BadRecord, first_record, invalid_utf8

if TYPE_CHECKING:
    from velostream.connectors.files.watch.layout import Layout
    from velostream.formats.csv.text import CsvDialect


class Header(NamedTuple):
    """The names of the fields, and the offset of the first record."""

    columns: tuple[str, ...] | None
    data_start: int
    bad: BadRecord | None = None
    """The header line, when its names are doubtful; no record is used as a header instead."""


def read_header(layout: Layout, head: bytes, final: bool) -> Header | None:
    """The columns that the beginning of a file declares; None while the first line is incomplete.

    Without a header line the names are numbered and the first line is a record, which may lack its end when
    the text is `final`. A header may not lack its end, since one more character would rename a column. JSON
    has no header.
    """
    mark = len(UTF8_MARK) if head.startswith(UTF8_MARK) else 0
    dialect = layout.dialect
    if dialect is None:
        return Header(None, mark)
    text = head[mark:]
    found = first_record(text, final=final, **layout.marks)
    if found is None:
        return None
    record, after = found
    fields = dialect.fields(record.decode("utf-8", errors="replace"))
    if not dialect.header:
        return Header(numbered_names(len(fields)), mark)
    returns = b"\r" in record and dialect.quote.encode() not in record
    if after > len(text) and not returns:
        return None
    reason = "holds a carriage return; lines end with LF or CRLF" if returns else _doubt(dialect, record)
    bad = None if reason is None else BadRecord(mark + text.find(record), record, f"the header {reason}")
    return Header(column_names(fields), mark + min(after, len(text)), bad)


def _doubt(dialect: CsvDialect, record: bytes) -> str | None:
    """Why a line is no valid header; None when it is."""
    reason = invalid_utf8(record)
    if reason is not None:
        return f"is {reason}"
    return "opens a quote that is not closed" if dialect.unclosed(record.decode()) else None
