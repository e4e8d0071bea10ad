"""JSON files that hold one document rather than one record per line."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPACE = re.compile(r"\s*")
_LINE_ENDS = re.compile(r"[\r\n]+")
_AS_IT_IS = "surrogateescape"
_DECODER = json.JSONDecoder(parse_float=float)


def holds_document(head: bytes) -> bool:
    """Whether a `.json` text that begins like this is one document.

    An array is one. An object is one unless it ends on its first line: then each line is a record, whatever
    else is on that line. `split_document` may find that it is none after all.
    """
    text = head.lstrip()
    if text.startswith(b"["):
        return True
    line, newline, _ = text.partition(b"\n")
    if not text.startswith(b"{") or not newline:
        return False
    try:
        _DECODER.raw_decode(line.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return True
    return False


def split_document(content: bytes) -> tuple[list[bytes], list[int]] | None:
    """The records of a document, each on one line with its digits as written, and their offsets.

    The elements of an array are the records; anything else is a single record. A text that is not JSON is a
    single record as it is, which decoding then finds bad. None when it is no document because its first line
    is bad: one of its lines is an object. Bytes that are not UTF-8 stay as they are.
    """
    text = content.decode("utf-8", errors=_AS_IT_IS)
    begin = _skip(text, 0)
    array = text[begin : begin + 1] == "["
    try:
        spans = _elements(text, begin) if array else [_value(text, begin)]
    except (ValueError, RecursionError):
        if not array and any(map(_is_object, text.split("\n"))):
            return None
        spans = [(begin, len(text))] if text.strip() else []
    records = [_bytes(_LINE_ENDS.sub(" ", text[first:last].rstrip())) for first, last in spans]
    starts, position, byte = [], 0, 0
    for first, _ in spans:
        byte += len(_bytes(text[position:first]))
        position = first
        starts.append(byte)
    return records, starts


def records_at(content: bytes, path: Sequence[str]) -> list[bytes]:
    """The records at a path of fields of a document, each on one line with its digits as written.

    The elements of an array are the records; null is none; anything else is a single record. Raises
    ValueError where the content is not JSON, and LookupError where it has no such field.
    """
    text = content.decode("utf-8", errors=_AS_IT_IS)
    position = _along(text, path)
    if text[position : position + 1] == "[":
        spans = _elements(text, position, alone=not path)
    else:
        spans = [_value(text, position, alone=not path)]
    found = [_bytes(_LINE_ENDS.sub(" ", text[first:last].rstrip())) for first, last in spans]
    return [] if found == [b"null"] else found


def value_at(content: bytes, path: Sequence[str]) -> Any:
    """The value at a path of fields; None where there is none. Raises ValueError where it is not JSON."""
    text = content.decode("utf-8", errors=_AS_IT_IS)
    try:
        return _DECODER.raw_decode(text, _along(text, path))[0]
    except LookupError:
        return None


def _along(text: str, path: Sequence[str]) -> int:
    """Where the value at a path of fields begins."""
    _value(text, begin := _skip(text, 0))
    for name in path:
        begin = _field(text, begin, name)
    return begin


def _field(text: str, position: int, name: str) -> int:
    """Where the value of a field of an object begins: of the last one of that name, as parsers have it."""
    found = None
    if text[position : position + 1] == "{":
        position = _skip(text, position + 1)
        while text[position : position + 1] == '"':
            field, position = _DECODER.raw_decode(text, position)
            position = _skip(text, _skip(text, position) + 1)
            if field == name:
                found = position
            _, position = _DECODER.raw_decode(text, position)
            position = _skip(text, position)
            if text[position : position + 1] == ",":
                position = _skip(text, position + 1)
    if found is None:
        raise LookupError(name)
    return found


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", errors=_AS_IT_IS)


def _is_object(line: str) -> bool:
    if not line.lstrip().startswith("{"):
        return False
    try:
        _value(line.strip(), 0)
    except (ValueError, RecursionError):
        return False
    return True


def _value(text: str, position: int, *, alone: bool = True) -> tuple[int, int]:
    _, end = _DECODER.raw_decode(text, position)
    if alone and text[_skip(text, end) :]:
        raise ValueError("text after the document")
    return position, end


def _elements(text: str, position: int, *, alone: bool = True) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    position = _skip(text, position + 1)
    while text[position : position + 1] != "]":
        if spans:
            if text[position : position + 1] != ",":
                raise ValueError("no comma between elements")
            position = _skip(text, position + 1)
        _, end = _DECODER.raw_decode(text, position)
        spans.append((position, end))
        position = _skip(text, end)
    if alone and text[_skip(text, position + 1) :]:
        raise ValueError("text after the array")
    return spans


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
