"""The properties `retention` and `state.ttl`: what they mean for a table, and what EXPLAIN says of them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.engine.kept.stream_table import TimedOutput
from velostream.errors import PropertyError, did_you_mean
from velostream.model.columns import EXPIRES
from velostream.model.durations import format_duration
from velostream.model.tables import Retention
from velostream.plan.plans import GroupsPlan, UpsertPlan

if TYPE_CHECKING:
    from velostream.engine.opened import Opened
    from velostream.model.options import CommonOptions

_EPOCHS = {"epoch_seconds": 1_000_000, "epoch_millis": 1000}


def retention_of(options: CommonOptions, columns: pa.Schema) -> Retention | None:
    """What the properties say of a table with these columns; PropertyError where that makes no sense."""
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
    """How `state.ttl` lets rows leave that hold the state of a query: that long after they were last written.

    None where there is no such property, and for windows, which are forgotten by event time. Raises
    PropertyError where a statement could not go on without what it has forgotten, or has nothing to forget.
    """
    if options.state_ttl is None:
        return None
    length = options.state_ttl // timedelta(microseconds=1)
    if length <= 0:
        raise PropertyError("state.ttl must be longer than nothing", hint='write it like "1h" or "7d"')
    plan = opened.plan
    if isinstance(plan, GroupsPlan) and plan.windowing is not None and plan.windowing.bounded:
        return None
    held = isinstance(plan, UpsertPlan) or (isinstance(plan, GroupsPlan) and plan.grouped)
    if not held or opened.below is not None:
        raise PropertyError(
            "state.ttl has nothing to forget: neither groups of a source nor last rows of its keys are kept",
            hint="leave it out; retention lets rows leave a table",
        )
    joined = any(isinstance(each.output, TimedOutput) for each in opened.live)
    if not opened.only_grows or (joined and not plan.appends):
        read = ", ".join(item.description for item in opened.read.values())
        raise PropertyError(
            f"state.ttl needs a source whose rows only come, and those of {read} can be taken back",
            detail="a row that is taken back has to be found where it was counted",
            hint="retention lets rows leave the table, and WHERE ts > now() - INTERVAL … what is read",
        )
    return Retention(length)


def stored(schema: pa.Schema, retention: Retention | None) -> pa.Schema:
    """What a table with this retention stores."""
    return schema if retention is None else schema.append(pa.field(EXPIRES, pa.int64()))


def told(options: CommonOptions) -> str | None:
    """What EXPLAIN says."""
    if options.retention is None:
        return None
    column = options.event_time_column or options.watermark_column
    since = f"their {column}" if column else "they were last written"
    return f"rows leave {format_duration(options.retention)} after {since}"
