"""Durations as users write them: `100ms 30s 5m 2h 1d`, or in words: `1 hour`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator

_UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_WORDS = {
    "millisecond": "ms",
    "second": "s",
    "minute": "m",
    "hour": "h",
    "day": "d",
}
_FORM = re.compile(rf"(\d+(?:\.\d+)?)\s*(?:({'|'.join(_WORDS)})s?\b\s*|(us|ms|s|m|h|d))")


def parse_duration(text: str) -> timedelta:
    """The duration that `text` means; ValueError names the valid form. `1h30m` adds up."""
    total, position, stripped = timedelta(), 0, text.strip()
    for match in _FORM.finditer(stripped):
        if match.start() != position:
            break
        total += float(match[1]) * _UNITS[_WORDS.get(match[2]) or match[3]]
        position = match.end()
    if not stripped or position != len(stripped):
        raise ValueError(f'"{text}" is not a duration; write it like 100ms, 30s, 5m, 2h or 1d')
    return total


def format_duration(duration: timedelta) -> str:
    """The shortest text that `parse_duration` reads back."""
    micros = duration // timedelta(microseconds=1)
    for unit in ("d", "h", "m", "s", "ms", "us"):
        size = _UNITS[unit] // timedelta(microseconds=1)
        if micros and micros % size == 0:
            return f"{micros // size}{unit}"
    return "0s"


def _coerce(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


Duration = Annotated[timedelta, BeforeValidator(_coerce)]
"""A pydantic field that takes `30s` or a timedelta."""
