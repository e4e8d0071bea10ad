"""Lines of text as records: JSON objects, rows of CSV as JSON objects, or the lines themselves."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from velostream.errors import SourceDataError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SAMPLE = 1000
"""Rows of CSV that tell which columns are numbers."""
_LITERALS: tuple[re.Pattern[str], ...] = (
    # A leading zero means a code of digits, such as a postcode.
    re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII),
    re.compile(r"true|false"),
)


Quiet = Callable[[], bool]
"""Waits for the next line, a while at most: whether none has come."""


def _never() -> bool:
    return False


class Line(NamedTuple):
    """One record."""

    key: str | None
    value: str


def json_lines(lines: Iterable[str], key: str | None, quiet: Quiet = _never) -> Iterator[Line]:
    """One JSON object per line, kept as it is written; `key` names the field that is the key.

    Later records may lack it; a first one without it means that it is misspelled.
    """
    first = True
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text:
            continue
        fields = _object(text, number)
        if first and key is not None and key not in fields:
            raise SourceDataError(
                f'line {number} has no field "{key}" to be the key',
                hint=did_you_mean(key, fields) or f"fields are {', '.join(fields)}",
            )
        first = False
        yield Line(_key_of(fields.get(key)) if key is not None else None, text)


def csv_rows(lines: Iterable[str], key: str | None, quiet: Quiet = _never) -> Iterator[Line]:
    """Rows below a header, as JSON objects; columns of numbers are numbers, and empty cells are null.

    A column is judged by the first 1,000 rows, or by those that come before the input is `quiet`.
    """
    rows = csv.reader(lines)
    names = next(rows, None)
    if names is None:
        return
    if key is not None and key not in names:
        hint = did_you_mean(key, names) or f"columns are {', '.join(names)}"
        raise SourceDataError(f'the header has no column "{key}"', hint=hint)
    sample = []
    for row in islice(rows, _SAMPLE):
        sample.append(row)
        if quiet():
            break
    plain = [_literal([row[place] for row in sample if place < len(row)]) for place in range(len(names))]
    for number, row in enumerate(chain(sample, rows), start=2):
        if not row:
            continue
        if len(row) != len(names):
            raise SourceDataError(f"row {number} has {len(row)} cells, and the header {len(names)}")
        cells = (
            f"{json.dumps(name, ensure_ascii=False)}:{_cell(cell, literal)}"
            for name, cell, literal in zip(names, row, plain, strict=True)
        )
        yield Line(row[names.index(key)] or None if key is not None else None, f"{{{','.join(cells)}}}")


def text_lines(lines: Iterable[str], key: str | None, quiet: Quiet = _never) -> Iterator[Line]:
    """Every line is a record, without its line end."""
    if key is not None:
        raise SourceDataError("lines of text have no fields, and so no key")
    for line in lines:
        yield Line(None, line.rstrip("\r\n"))


READERS: dict[str, Callable[[Iterable[str], str | None, Quiet], Iterator[Line]]] = {
    "json": json_lines,
    "csv": csv_rows,
    "text": text_lines,
}
"""From the name of a format to what reads it."""


def _object(text: str, number: int) -> dict[str, object]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as exc:
        raise SourceDataError(
            f"line {number} is not JSON: {exc.msg.lower()} at column {exc.colno}",
            hint="--format text takes lines as they are",
        ) from exc
    if not isinstance(found, dict):
        raise SourceDataError(
            f"line {number} is JSON, but no object", hint="--format text takes lines as they are"
        )
    return found


def _key_of(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _literal(cells: list[str]) -> re.Pattern[str] | None:
    """What all cells of a column look like, apart from empty ones; None: text."""
    filled = [cell for cell in cells if cell]
    return next((form for form in _LITERALS if filled and all(map(form.fullmatch, filled))), None)


def _cell(cell: str, literal: re.Pattern[str] | None) -> str:
    if not cell:
        return "null"
    return cell if literal is not None and literal.fullmatch(cell) else json.dumps(cell, ensure_ascii=False)
