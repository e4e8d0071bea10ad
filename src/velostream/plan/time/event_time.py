"""Event time of a source's rows, as SQL."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.errors import PropertyError, TypeMismatchError, did_you_mean
from velostream.model.columns import ENTERED, EVENT_TIME
from velostream.model.windows import EventTime

if TYPE_CHECKING:
    from velostream.model.options import CommonOptions
    from velostream.model.statements import SourceRef


_SECONDS, _MILLIS, _MICROS = 10**11, 10**14, 10**17
"""Whole numbers from these on (year 5138) are read as milliseconds, microseconds, nanoseconds."""


def event_time_of(ref: SourceRef, options: CommonOptions, window_column: str | None = None) -> EventTime:
    """The event time of a source: from WINDOW, else from properties, else from CREATE SOURCE."""
    declared = ref.watermark
    column = window_column or options.event_time_column or options.watermark_column
    delay = timedelta(milliseconds=options.max_out_of_orderness_ms)
    if declared is not None:
        column = column or declared.column
        if "max_out_of_orderness_ms" not in ref.properties:
            delay = declared.delay
    if column is not None and column.casefold() in (EVENT_TIME, ENTERED):
        column = None
    return EventTime(
        column,
        options.event_time_format,
        delay // timedelta(microseconds=1),
        options.idle_timeout.total_seconds(),
    )


def event_time_sql(time: EventTime, columns: pa.Schema, source: str) -> str:
    """SQL of type TIMESTAMP over a source's columns; PropertyError for an unknown column."""
    if time.column is None:
        return f"`{ENTERED}`"
    first, *inner = time.column.split(".")
    found = [name for name in columns.names if name.casefold() == first.casefold()]
    if not found:
        raise PropertyError(
            f'the event time column "{time.column}" is not a column of {source}',
            hint=did_you_mean(first, columns.names) or f"its columns are {', '.join(columns.names)}",
        )
    kind = columns.field(found[0]).type
    for part in inner:
        index = kind.get_field_index(part) if pa.types.is_struct(kind) else -1
        if index < 0:
            raise PropertyError(f'the event time column "{time.column}" has no field "{part}"')
        kind = kind.field(index).type
    text = ".".join(f"`{name.replace('`', '``')}`" for name in (found[0], *inner))
    return _converted(text, kind, time.format, time.column)


def _converted(text: str, kind: pa.DataType, form: str, column: str) -> str:
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return text if pa.types.is_timestamp(kind) and kind.tz is not None else f"CAST({text} AS TIMESTAMP)"
    number = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind)
    words = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if form in ("epoch_seconds", "epoch_millis") and (number or words):
        exact = text if pa.types.is_integer(kind) else f"CAST({text} AS DECIMAL(20, 6))"
        scale = "" if form == "epoch_seconds" else " / 1000"
        if pa.types.is_integer(kind):
            return f"timestamp_{'seconds' if form == 'epoch_seconds' else 'millis'}(CAST({text} AS BIGINT))"
        return f"timestamp_seconds({exact}{scale})"
    if form in ("auto", "iso8601") and words:
        return f"CAST({text} AS TIMESTAMP)"
    if form == "auto" and pa.types.is_integer(kind):
        whole = f"CAST({text} AS BIGINT)"
        return (
            f"CASE WHEN abs({whole}) < {_SECONDS} THEN timestamp_seconds({whole})"
            f" WHEN abs({whole}) < {_MILLIS} THEN timestamp_millis({whole})"
            f" WHEN abs({whole}) < {_MICROS} THEN timestamp_micros({whole})"
            f" ELSE timestamp_micros({whole} DIV 1000) END"
        )
    if form == "auto" and number:
        return f"timestamp_seconds(CAST({text} AS DECIMAL(20, 6)))"
    if words:
        pattern = form.replace("\\", "\\\\").replace("'", "\\'")
        return f"to_timestamp({text}, '{pattern}')"
    raise TypeMismatchError(
        f'the event time column "{column}" is {kind}, and "event.time.format" is {form}',
        hint="event times are a TIMESTAMP, a DATE, text, or a number since 1970 "
        '("event.time.format" = "epoch_seconds" or "epoch_millis")',
    )
