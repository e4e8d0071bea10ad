"""SQL with the clock stopped: every function of the clock replaced by what it says at one time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLOCK = re.compile(
    r"\b(?:(now|localtimestamp|curdate|unix_timestamp)\(\)|(current_timestamp|current_date)\b(?:\(\))?)"
)


def micros(at: datetime) -> int:
    """The time in microseconds since 1970."""
    return (at - EPOCH) // timedelta(microseconds=1)


def stopped(sql: str, at: datetime) -> str:
    """The same text for a clock that stands."""
    stamp = at.strftime("%Y-%m-%d %H:%M:%S.%f")

    def value(call: re.Match[str]) -> str:
        name = call[1] or call[2]
        if name in {"current_date", "curdate"}:
            return f"DATE '{stamp[:10]}'"
        if name == "unix_timestamp":
            return f"CAST({micros(at) // 1_000_000} AS BIGINT)"
        return f"{'TIMESTAMP_NTZ' if name == 'localtimestamp' else 'TIMESTAMP'} '{stamp}'"

    return _CLOCK.sub(value, sql)
