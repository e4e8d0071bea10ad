"""JSON files that hold one document rather than one record per line."""

from __future__ import annotations

import json
import re

_SPACE = re.compile(r"\s*")
_LINE_ENDS = re.compile(r"[\r\n]+")
_DECODER = json.JSONDecoder(parse_float=float)


def holds_document(head: bytes) -> bool:
    """Whether a `.json` text that begins like this is one document.

    An array is one. An object is one unless it ends on the line it begins on: then each line is a record,
    whatever else stands on that line.
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


def split_document(content: bytes) -> tuple[list[bytes], list[int]]:
    """The records of a document, each on one line with its digits as written, and where each begins.

    The elements of an array are the records; anything else is a single one. A text that is no JSON is a
    single record as it stands, which decoding will then find bad.
    """
    text = content.decode("utf-8", errors="replace")
    begin = _skip(text, 0)
    try:
        spans = _elements(text, begin) if text[begin : begin + 1] == "[" else [_value(text, begin)]
    except (ValueError, RecursionError):
        spans = [(begin, len(text))] if text.strip() else []
    ascii_only = len(text) == len(content)
    records = [_LINE_ENDS.sub(" ", text[a:b].rstrip()).encode() for a, b in spans]
    starts = [a if ascii_only else len(text[:a].encode()) for a, _ in spans]
    return records, starts


def _value(text: str, position: int) -> tuple[int, int]:
    _, end = _DECODER.raw_decode(text, position)
    if text[_skip(text, end) :]:
        raise ValueError("text after the document")
    return position, end


def _elements(text: str, position: int) -> list[tuple[int, int]]:
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
    if text[_skip(text, position + 1) :]:
        raise ValueError("text after the array")
    return spans


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
