"""JSON escapes of half a surrogate pair: no text can hold one, and Spark reads a question mark."""

from __future__ import annotations

import re

from velostream.sql.types import literal

_PAIRED = (
    r"^(?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F])"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+$"
)
"""Matches a record whose surrogates are pairs; for Java and Python alike."""
_MATCHES = re.compile(_PAIRED)
HALF_A_PAIR = "half a surrogate pair, which is no character"
"""The reason why such a record is bad."""


def has_half_a_pair(record: str) -> bool:
    """Whether a JSON record escapes half a surrogate pair somewhere."""
    return "\\ud" in record.lower() and _MATCHES.match(record) is None


def half_a_pair_sql(text: str) -> str:
    """SQL for the same; the first tests decide nearly all records."""
    asked = " OR ".join(f"contains({text}, {literal(begin)})" for begin in ("\\ud", "\\uD"))
    return f"(({asked}) AND NOT {text} RLIKE {literal(_PAIRED)})"
