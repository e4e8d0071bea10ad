"""Cells of a case: from text to a value of a column's type, and back."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.formats.columns.inference import parse_json
from velostream.formats.columns.values import json_value, text_value
from velostream.formats.json.text import json_value as json_text
from velostream.formats.json.text import plain_text

if TYPE_CHECKING:
    from collections.abc import Sequence

DAY = date(2026, 1, 1)
"""The date of a time without one."""
NOON = datetime(DAY.year, DAY.month, DAY.day, 12, tzinfo=UTC)
"""The time at which a case begins."""
NULL = "null"
_TIME = re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?")
_CELL = re.compile(r"\s*(?:'((?:[^']|'')*)'|((?:[^|'][^|]*?)?))\s*(?:\||$)")
_PLAIN = re.compile(r"[^\s|'+-](?:[^|]*[^\s|])?|-?\d[^|]*|-\w[^|]*")


def split_cells(line: str) -> tuple[str | None, ...]:
    """The cells of a line; ValueError says which one is empty."""
    cells: list[str | None] = []
    position = 0
    while True:
        match = _CELL.match(line, position)
        if match is None:
            raise ValueError(f"what follows {line[:position]!r} is no cell: a quote is not closed")
        if match[1] is not None:
            cells.append(match[1].replace("''", "'"))
        elif not match[2]:
            raise ValueError(f"cell {len(cells) + 1} is empty: write null, or '' for an empty text")
        else:
            cells.append(None if match[2].lower() == NULL else match[2])
        position = match.end()
        if not match[0].endswith("|"):
            return tuple(cells)


def moment(text: str) -> datetime:
    """A time with or without its date, in UTC unless it says otherwise; ValueError if it is none."""
    if _TIME.fullmatch(text):
        return datetime.combine(DAY, time.fromisoformat(text), UTC)
    value: datetime = text_value(text, pa.timestamp("us", tz="UTC"))
    return value


def value_of(text: str | None, kind: pa.DataType) -> Any:
    """The value of a cell; ValueError says why it is invalid."""
    if text is None:
        return None
    if pa.types.is_timestamp(kind):
        value = moment(text)
        return value if kind.tz is not None else value.replace(tzinfo=None)
    if pa.types.is_nested(kind):
        parsed = parse_json(text)
        if parsed is None:
            raise ValueError(f'"{text}" is not written as JSON')
        return json_value(parsed, kind)
    value = text_value(text, kind)
    if pa.types.is_decimal(kind):
        # With as many places as the column shows.
        return value.quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=77))
    return value


def text_of(value: Any) -> str:
    """A value in the form of a case file."""
    if value is None:
        return NULL
    if isinstance(value, datetime):
        at = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).astimezone(UTC)
        clock = at.time().isoformat()
        return clock if at.date() == DAY else f"{at.date()} {clock}"
    if isinstance(value, dict | list):
        return json_text(value)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() != NULL and "\n" not in value
        return value if plain else "'" + value.replace("'", "''").replace("\n", "\\n") + "'"
    return plain_text(value)


def comparable(value: Any) -> Any:
    """A form in which equal values are equal: doubles to twelve digits, as sums depend on their order."""
    if isinstance(value, float):
        return float(f"{value:.12g}") if value == value else "NaN"
    if isinstance(value, dict):
        return tuple((key, comparable(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(comparable(item) for item in value)
    return value


def aligned(lines: Sequence[Sequence[str]], numbers: Sequence[bool] = ()) -> list[str]:
    """Cells aligned in columns."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)] if lines else []
    right = [*numbers, *([False] * (len(widths) - len(numbers)))]
    return [
        " | ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    ]
