"""The properties `retention` and `state.ttl`: what they mean for a table, and what EXPLAIN says of them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.engine.kept.stream_rows import StreamRows
from velostream.errors import PropertyError, did_you_mean
from velostream.model.columns import EXPIRES
from velostream.model.durations import format_duration
from velostream.model.tables import Retention

if TYPE_CHECKING:
    from velostream.engine.opening.opened_query import Opened
    from velostream.model.options import CommonOptions

_EPOCHS = {"epoch_seconds": 1_000_000, "epoch_millis": 1000}


def retention_of(options: CommonOptions, columns: pa.Schema) -> Retention | None:
    """The retention of a table with these columns; raises PropertyError where the properties do not fit."""
    if options.retention is None:
        return None
    length = options.retention // timedelta(microseconds=1)
    if length <= 0:
        raise PropertyError("retention must be longer than nothing", hint='write it like "1h" or "7d"')
    written = options.event_time_column or options.watermark_column
    if written is None:
        return Retention(length)
    found = [name for name in columns.names if name.casefold() == written.casefold()]
    if not found:
        raise PropertyError(
            f'retention counts from "{written}", which is not a column of the table',
            hint=did_you_mean(written, columns.names)
            or "select it, or leave event.time.column out: "
            "then rows leave that long after they were last written",
        )
    kind = columns.field(found[0]).type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return Retention(length, found[0])
    unit = _EPOCHS.get(options.event_time_format)
    if unit is None or not pa.types.is_integer(kind):
        raise PropertyError(
            f'retention counts from "{found[0]}", which is {kind}',
            hint="make it a TIMESTAMP or a DATE; whole numbers need "
            '"event.time.format" = "epoch_seconds" or "epoch_millis"',
        )
    return Retention(length, found[0], unit)


def untouched(options: CommonOptions, opened: Opened) -> Retention | None:
    """The retention by `state.ttl` of the state of a query: rows expire that long after their last change.

    None without that property, and for windows, which are forgotten by event time. Raises PropertyError where
    the statement could not continue without forgotten state, or has no state.
    """
    if options.state_ttl is None:
        return None
    length = options.state_ttl // timedelta(microseconds=1)
    if length <= 0:
        raise PropertyError("state.ttl must be longer than nothing", hint='write it like "1h" or "7d"')
    plan = opened.plan
    if plan.closes:
        return None
    if not plan.by_key or opened.below is not None:
        raise PropertyError(
            "state.ttl has nothing to forget: neither groups of a source nor last rows of its keys are kept",
            hint="leave it out; retention lets rows leave a table",
        )
    joined = any(isinstance(each.output, StreamRows) for each in opened.kept)
    if not opened.only_grows or (joined and not plan.appends):
        read = ", ".join(item.description for item in opened.read.values())
        raise PropertyError(
            f"state.ttl needs a source that only adds rows, and rows of {read} can be retracted",
            detail="a retracted row has to be found where it was counted",
            hint="retention lets rows leave the table, and WHERE ts > now() - INTERVAL … what is read",
        )
    return Retention(length)


def stored(schema: pa.Schema, retention: Retention | None) -> pa.Schema:
    """The stored schema of a table with this retention."""
    return schema if retention is None else schema.append(pa.field(EXPIRES, pa.int64()))


def told(options: CommonOptions) -> str | None:
    """What EXPLAIN says."""
    if options.retention is None:
        return None
    column = options.event_time_column or options.watermark_column
    since = f"their {column}" if column else "they were last written"
    return f"rows leave {format_duration(options.retention)} after {since}"
