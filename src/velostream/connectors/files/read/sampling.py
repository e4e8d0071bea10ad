"""Schema inference from a bounded sample of the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.connectors.files.read.binary import read_schema
from velostream.connectors.files.watch.headers import Header, read_header
from velostream.errors import SourceDataError
from velostream.formats.columns.inference import infer_csv, infer_json, merge_schemas
from velostream.formats.compression import utf8_chunks, wide_encoding
from velostream.formats.json.documents import holds_document, split_document
from velostream.formats.records import NEWLINE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from velostream.connectors.files.place import Place
    from velostream.connectors.files.watch.layout import Layout

_FILES = 8
_HEAD = 512 * 1024
_PART = 128 * 1024
_ROWS = 4000


def sample_schema(place: Place, files: Sequence[tuple[str, Layout]]) -> pa.Schema | None:
    """The columns of files, inferred from a few of them; None when they hold no row."""
    found: pa.Schema | None = None
    for path, layout in _spread(files):
        schema = _binary(place, path, layout) if layout.binary else _text(place, path, layout)
        if schema is not None:
            found = schema if found is None else merge_schemas(found, schema)
    return found


def header_schema(place: Place, files: Sequence[tuple[str, Layout]]) -> pa.Schema | None:
    """The names in the header of the first CSV file that has one, as STRING columns."""
    for path, layout in files:
        if layout.dialect is not None and layout.dialect.header:
            content = _content(place, path, layout)[0].rstrip(b"\r\n")
            header = read_header(layout, content + NEWLINE, final=True) if content else None
            if header is not None and header.columns:
                return pa.schema([pa.field(name, pa.string()) for name in header.columns])
    return None


def _spread(files: Sequence[tuple[str, Layout]]) -> Sequence[tuple[str, Layout]]:
    """The first and last files: names often begin with a date, so this samples old and new ones."""
    half = _FILES // 2
    return files if len(files) <= _FILES else [*files[:half], *files[-half:]]


def _binary(place: Place, path: str, layout: Layout) -> pa.Schema | None:
    try:
        with place.open(path) as stream:
            return read_schema(stream, layout.format)[0]
    except (pa.ArrowInvalid, OSError, ValueError, EOFError):
        return None


def _text(place: Place, path: str, layout: Layout) -> pa.Schema | None:
    parts = _content(place, path, layout)
    head = parts[0]
    if layout.format == "json" and holds_document(head):
        with place.open(path) as stream:
            content = b"".join(utf8_chunks(stream, layout.packed, document=holds_document))
        document = split_document(content)
        if document is not None:
            return infer_json(document[0][:_ROWS])
    ended = head if head.endswith(NEWLINE) else head + NEWLINE
    header = read_header(layout, ended, final=True)
    if header is None:
        return None
    records = list(_records(layout, parts, header))
    if not records:
        return None
    if header.columns is None or layout.dialect is None:
        return infer_json(records)
    texts = (record.decode("utf-8", errors="replace") for record in records)
    return infer_csv(header.columns, layout.dialect.rows(texts, len(header.columns)))


def _records(layout: Layout, parts: Sequence[bytes], header: Header) -> Iterator[bytes]:
    for number, part in enumerate(parts):
        if number == 0:
            text = part[header.data_start :]
        else:
            # A part begins in the middle of a record; quotes may then be misread, which at worst yields a
            # wrong number of fields, and such records are left out.
            text = part[part.find(NEWLINE) + 1 :]
        last = number == len(parts) - 1
        records, share = layout.split(text, final=last).as_list(), _ROWS // len(parts)
        yield from records[-share:] if last else records[:share]


def _content(place: Place, path: str, layout: Layout) -> list[bytes]:
    """The beginning, and for a large plain file also parts of the middle and the end."""
    with place.open(path) as stream:
        head = stream.read(_HEAD)
        if layout.packed is not None or wide_encoding(head) is not None:
            stream.seek(0)
            return [_packed_head(stream, layout)]
        size = place.identity(path, stream).size
        if size <= _HEAD:
            return [head]
        parts = [head]
        for start in (size // 2, size - _PART):
            if start > _HEAD:
                stream.seek(start)
                parts.append(stream.read(_PART))
        return parts if len(parts) > 1 else [head + stream.read(size - _HEAD)]


def _packed_head(stream: object, layout: Layout) -> bytes:
    head = b""
    try:
        for chunk in utf8_chunks(stream, layout.packed):  # type: ignore[arg-type]
            head += chunk
            if len(head) >= _HEAD:
                break
    except SourceDataError:
        return head
    return head
