"""Checks records that should be one JSON object each, before Spark reads them.

Spark stops reading a record where its first object ends, so anything after it would be lost silently.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from velostream.formats.records import BadRecord, Records, join_records, split_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PORTION = 64 * 1024
"""Fits the caches of a processor: portions of 4 MB take 2.5 times as long."""
_BLANK = b" \t\r\n"
# An unclosed text extends to the end: retrying from each of its quotes would take quadratic time.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
TAIL = "text after the JSON object"
"""The reason why such a record is bad."""


def set_tails_aside(records: Records) -> Records:
    """The same records, with those that have text after their object moved to the bad ones.

    They are plain if each is exactly one object.
    """
    tails, objects = _tails(records)
    records = replace(records, plain=objects)
    if not tails:
        return records
    old, positions = records.as_list(), records.positions()
    gone = set(tails)
    kept = [number for number in range(len(old)) if number not in gone]
    text, separator = join_records([old[number] for number in kept])
    bad = [*records.bad, *(BadRecord(int(positions[n]), old[n], TAIL) for n in tails)]
    open_from = records.rows - records.provisional
    return replace(
        records,
        text=text,
        rows=len(kept),
        separator=separator,
        line_end=0,
        starts=positions[kept],
        bad=tuple(sorted(bad, key=lambda record: record.start)),
        provisional=sum(number >= open_from for number in kept),
    )


def has_tail(record: bytes) -> bool:
    """Whether text follows the object that a record begins with."""
    if not record.lstrip(_BLANK).startswith(b"{"):
        return False
    depth = 0
    for match in _TOKEN.finditer(record):
        token = match[0]
        depth += (token in b"{[") - (token in b"}]")
        if depth == 0 and token in b"}]":
            return bool(record[match.end() :].strip(_BLANK))
    return False


def unknown_records(text: bytes, separator: bytes, known: pa.Schema) -> Iterator[bytes]:
    """Records of a spooled text that may have a field, or a nested one, that is not known."""
    for portion in _portions(text, separator):
        objects = _objects(portion, separator, portion.count(separator))
        if objects is None or not _all_known(objects, known):
            yield from split_text(portion, separator)


def _all_known(objects: list[dict[str, Any]], fields: Iterable[pa.Field]) -> bool:
    kinds = {field.name.casefold(): field.type for field in fields}
    names: set[str] = set().union(*objects)
    if not all(name.casefold() in kinds for name in names):
        return False
    for name in names:
        kind = kinds[name.casefold()]
        if pa.types.is_struct(kind):
            inner = [value for each in objects if isinstance(value := each.get(name), dict)]
            if not _all_known(inner, kind):
                return False
    return True


def _tails(records: Records) -> tuple[list[int], bool]:
    """The numbers of the records with text after their object, and whether all are objects."""
    found: list[int] = []
    first, objects = 0, True
    for portion in _portions(records.text, records.separator):
        rows = portion.count(records.separator)
        if _objects(portion, records.separator, rows) is None:
            objects = False
            lines = enumerate(split_text(portion, records.separator), start=first)
            found += [number for number, record in lines if not _parses(record) and has_tail(record)]
        first += rows
    return found, objects


def _portions(text: bytes, separator: bytes) -> Iterator[bytes]:
    begin = 0
    while begin < len(text):
        end = text.find(separator, begin + PORTION)
        end = len(text) if end < 0 else end + len(separator)
        yield text[begin:end]
        begin = end


def _objects(text: bytes, separator: bytes, rows: int) -> list[dict[str, Any]] | None:
    """The objects of the records, parsed all at once; None unless each is exactly one object.

    Between records is a text that occurs in none of them. If all of these are elements of the one array, no
    record extends into the next; if there are no more other elements than records, none holds two.
    """
    mark = secrets.token_hex(16)
    joined = text.removesuffix(separator).replace(separator, b',"%s",' % mark.encode())
    try:
        values = orjson.loads(b"[%s]" % joined)
    except orjson.JSONDecodeError:
        return None
    marks, objects = values[1::2], values[::2]
    apart = len(values) == 2 * rows - 1 and marks.count(mark) == rows - 1
    return objects if apart and {*map(type, objects)} == {dict} else None


def _parses(record: bytes) -> bool:
    try:
        orjson.loads(record)
    except orjson.JSONDecodeError:
        return False
    return True
