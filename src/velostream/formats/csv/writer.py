"""Writes rows as CSV text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from velostream.formats.json.text import json_value, plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from velostream.formats.csv.text import CsvDialect


def csv_header(names: Sequence[str], dialect: CsvDialect) -> str:
    """The header line of a file."""
    return dialect.delimiter.join(_field(name, dialect) for name in names) + "\n"


def csv_lines(rows: pa.Table, dialect: CsvDialect) -> Iterator[str]:
    """One record per row, with its line end; nested values are JSON."""
    for row in rows.to_pylist():
        yield dialect.delimiter.join(_field(value, dialect) for value in row.values()) + "\n"


def _field(value: Any, dialect: CsvDialect) -> str:
    if value is None:
        return dialect.null
    text = json_value(value) if isinstance(value, dict | list) else plain_text(value)
    special = (dialect.delimiter, dialect.quote, "\n", "\r")
    # An empty text is quoted to distinguish it from NULL, for readers that can.
    if text in ("", dialect.null) or any(mark in text for mark in special):
        return dialect.quote + text.replace(dialect.quote, dialect.quote * 2) + dialect.quote
    return text
