"""The first line of a CSV file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from velostream.formats.csv_text import column_names, numbered_names
from velostream.formats.encodings import UTF8_MARK

if TYPE_CHECKING:
    from velostream.connectors.file.layout import Layout


class Header(NamedTuple):
    """The names of the fields, and the byte at which the records begin."""

    columns: tuple[str, ...] | None
    data_start: int


def read_header(layout: Layout, head: bytes, final: bool) -> Header | None:
    """What the beginning of a file says about its columns; None while the first line is unfinished.

    Without a header line the names are numbered and the first line is a record, which may lack its end
    when the text is `final`; a header may not, since one more character would rename a column. JSON has no
    names to tell.
    """
    mark = len(UTF8_MARK) if head.startswith(UTF8_MARK) else 0
    if layout.dialect is None:
        return Header(None, mark)
    records = layout.split(head[mark:], final=final and not layout.dialect.header)
    if not records.rows:
        return None
    first = records.part(0, 1).text.removesuffix(records.separator)
    fields = layout.dialect.fields(first.decode("utf-8", errors="replace"))
    if not layout.dialect.header:
        return Header(numbered_names(len(fields)), mark)
    end = int(records.positions()[1]) if records.rows > 1 else records.settled
    return Header(column_names(fields), mark + end)
