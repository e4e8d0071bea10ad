"""Calendar windows: of months, of days in a time zone, and of fractions of such a day."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from velostream.errors import UnsupportedError
from velostream.model.statements import WindowKind
from velostream.sql.parse.dialect import Velostream
from velostream.sql.parse.structure import rewrite
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from velostream.model.statements import WindowSpec

UTC = "UTC"
_DAY = timedelta(days=1)
_MICRO = timedelta(microseconds=1)


def calendar_bounds(spec: WindowSpec, time: exp.Expr, zone: str) -> tuple[exp.Expr, exp.Expr] | None:
    """The bounds of the window that contains a time; None where a window is a fixed number of microseconds.

    Days begin at midnight of the zone, so a day has 23 or 25 hours when daylight saving changes. Fractions of
    a day are counted from midnight, and the last one of a long or short day ends with the day.
    """
    if spec.months is None and zone == UTC:
        return None
    if spec.kind is not WindowKind.TUMBLING or spec.offset:
        what = "windows with an offset" if spec.offset else f"{spec.kind} windows, whose length is fixed"
        raise UnsupportedError(
            f'months and "time.zone" are not followed by {what}',
            hint="leave it out, or use a tumbling window",
        )
    at = time.sql(dialect=SPARK)
    local = at if zone == UTC else f"from_utc_timestamp({at}, '{zone}')"
    if spec.months is not None:
        number = f"((year({local}) - 1970) * 12 + month({local}) - 1)"
        first = f"({number} - pmod({number}, {spec.months}))"
        return _instants(
            (
                f"add_months(DATE'1970-01-01', {first})",
                f"add_months(DATE'1970-01-01', {first} + {spec.months})",
            ),
            zone,
        )
    assert spec.size is not None
    if spec.size % _DAY == timedelta(0):
        days, number = spec.size // _DAY, f"unix_date(CAST({local} AS DATE))"
        first = f"({number} - pmod({number}, {days}))"
        return _instants((f"date_from_unix_date({first})", f"date_from_unix_date({first} + {days})"), zone)
    if _DAY % spec.size != timedelta(0):
        return None
    day = f"CAST({local} AS DATE)"
    midnight, next_midnight = (_instant(date, zone) for date in (day, f"date_add({day}, 1)"))
    size = spec.size // _MICRO
    passed = f"(unix_micros({at}) - unix_micros({midnight}))"
    first = f"(unix_micros({at}) - pmod({passed}, {size}L))"
    return (
        _parsed(f"timestamp_micros({first})"),
        _parsed(f"least(timestamp_micros({first} + {size}L), {next_midnight})"),
    )


def _instants(dates: tuple[str, str], zone: str) -> tuple[exp.Expr, exp.Expr]:
    start, end = (_parsed(_instant(date, zone)) for date in dates)
    return start, end


def _parsed(text: str) -> exp.Expr:
    """An expression, parsed as if a user had written it."""
    select = parse_one(f"SELECT {text}", dialect=Velostream)
    assert isinstance(select, exp.Select)
    return rewrite(select.selects[0])


def _instant(date: str, zone: str) -> str:
    """The instant at which a day begins."""
    midnight = f"CAST({date} AS TIMESTAMP)"
    return midnight if zone == UTC else f"to_utc_timestamp({midnight}, '{zone}')"
