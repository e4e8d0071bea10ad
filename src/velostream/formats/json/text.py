"""Values as JSON text, with every digit of a decimal."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any


def json_value(value: Any, decimals_as_text: bool = False) -> str:
    """One value as JSON text; the inverse of what the sources read.

    Decimals keep their digits, as numbers unless `decimals_as_text`. Timestamps are ISO 8601 in UTC,
    binary is base64. NaN and infinities, which JSON does not have, become strings.
    """
    if isinstance(value, Decimal):
        return f'"{value:f}"' if decimals_as_text else f"{value:f}"
    if isinstance(value, float) and not math.isfinite(value):
        return f'"{plain_text(value)}"'
    if value is None or isinstance(value, bool | int | float | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        inner = (
            f"{json.dumps(str(k), ensure_ascii=False)}:{json_value(v, decimals_as_text)}"
            for k, v in value.items()
        )
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
            return json_value(dict(value), decimals_as_text)
        return "[" + ",".join(json_value(item, decimals_as_text) for item in value) + "]"
    return json.dumps(plain_text(value), ensure_ascii=False)


def cell_text(value: Any) -> str:
    """One value as people see it in a table: scalars plain, all else as JSON.

    Bytes that are text are shown as that text; others in hexadecimal, as SQL writes them.
    """
    if isinstance(value, bytes):
        text = _readable(value)
        return text if text is not None else f"X'{value.hex().upper()}'"
    return json_value(value) if isinstance(value, dict | list) else plain_text(value)


def _readable(value: bytes) -> str | None:
    """The text that these bytes are; None where they are none that a person could read."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if all(char.isprintable() or char in "\t\r\n" for char in text) else None


def plain_text(value: Any) -> str:
    """One scalar as text, as in CSV and inside the quotes of JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat()
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, timedelta):
        return _seconds_text(value)
    return str(value)


def _seconds_text(value: timedelta) -> str:
    """Seconds with every digit, like Protobuf writes a Duration in JSON."""
    micros = value // timedelta(microseconds=1)
    whole, rest = divmod(abs(micros), 1_000_000)
    digits = f".{rest:06}".rstrip("0") if rest else ""
    return f"{'-' if micros < 0 else ''}{whole}{digits}s"


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)
