"""Why a record cannot be decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.formats.inference import parse_json
from velostream.formats.values import json_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


def why_bad(raw: bytes | None, fields: Sequence[pa.Field]) -> str:
    """The reason, for a dead letter."""
    if raw is None:
        return "the record has no value"
    if not raw.strip():
        return "the value is empty"
    try:
        raw.decode()
    except UnicodeDecodeError as exc:
        return f"the value is not UTF-8: byte {exc.start} is {raw[exc.start]:#04x}"
    value = parse_json(raw)
    if not isinstance(value, dict):
        return "the value is not a JSON object"
    for field in fields:
        try:
            json_value(value.get(field.name), field.type)
        except ValueError as exc:
            return f"column {field.name}: {exc}"
    return "the value cannot be decoded"
