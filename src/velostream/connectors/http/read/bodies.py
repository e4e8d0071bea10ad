"""The rows of an answer, or of what was posted to us."""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from velostream.formats.json.documents import records_at, value_at

if TYPE_CHECKING:
    from collections.abc import Sequence

_LINES = {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"}
_LINES |= {"application/json-lines", "application/jsonlines", "application/json-seq"}
_FIELDS = 8
"""Fields that are named where the one that was asked for is not there."""


class UnfitError(Exception):
    """A content that does not have rows where they are looked for; the message says why."""


@dataclass(frozen=True)
class Path:
    """Names of fields, each inside the one before: `data.items`."""

    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str | None) -> Path:
        """The path that a property writes."""
        return cls(tuple(name for name in (text or "").removeprefix("$.").split(".") if name))

    def __str__(self) -> str:
        return ".".join(self.names)


def json_records(content: bytes, kind: str, path: Path, *, lines: bool = False) -> list[bytes]:
    """The records of a JSON content of a media type, each on one line: of a document, or one in each line.

    `lines`: each line is a record, whatever the media type says.
    """
    content = content.removeprefix(codecs.BOM_UTF8)
    if lines or kind in _LINES:
        return _split(content)
    if not content.strip():
        raise UnfitError("it is not JSON: it is empty")
    try:
        return records_at(content, path.names)
    except LookupError as exc:
        raise UnfitError(f'it has no "{path}": {_fields(content)}') from exc
    except (ValueError, RecursionError) as exc:
        if not path.names and _each_line_begins(content):
            return _split(content)
        raise UnfitError(f"it is not JSON: {exc}") from exc


def field(content: bytes, path: Path) -> Any:
    """The value at a path of a JSON content; None where there is none, or it is not JSON."""
    try:
        return value_at(content, path.names)
    except (ValueError, RecursionError):
        return None


def _split(content: bytes) -> list[bytes]:
    # The records of a text sequence begin with a mark of their own.
    return [line.strip(b"\r\x1e") for line in content.split(b"\n") if line.strip()]


def _each_line_begins(content: bytes) -> bool:
    """Whether a content may be lines of objects, some of which may be damaged."""
    lines = _split(content)
    return len(lines) > 1 and all(line.lstrip().startswith(b"{") for line in lines[:2])


def _fields(content: bytes) -> str:
    """What the document has instead."""
    try:
        found = json.loads(content)
    except ValueError:
        return "it is not JSON"
    if isinstance(found, dict):
        names: Sequence[str] = list(found)
        shown = ", ".join(f'"{name}"' for name in names[:_FIELDS]) + (" …" if len(names) > _FIELDS else "")
        return f"it has {shown or 'no field'}"
    return f"it is {'an array' if isinstance(found, list) else 'a single value'}"
