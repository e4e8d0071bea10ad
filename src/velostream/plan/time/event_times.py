"""Timing of a statement: event times, windows, and the OVER clauses ordered by time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from velostream.model.options import common_options
from velostream.model.windows import EventTime, Windowing
from velostream.plan.over.clauses import over_query, rows_time
from velostream.plan.time.event_time import event_time_of
from velostream.plan.time.stream_joins import joins_streams
from velostream.plan.time.windows import inner_windows, time_column, timed_table, windowed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from velostream.model.options import CommonOptions
    from velostream.model.statements import Query
    from velostream.plan.over.clauses import OverQuery


@dataclass(frozen=True)
class Timing:
    """The event times and windows of a statement."""

    windowing: Windowing | None = None
    times: Mapping[str, EventTime] = field(default_factory=dict)
    """The event time of each input that has one."""
    over: OverQuery | None = None
    """The query with OVER over a source; None where the statement has none."""
    inner: Query | None = None
    """The inner query that groups by windows, where the statement contains more than that."""


def timed(query: Query, options: CommonOptions, upserting: Collection[str] = ()) -> tuple[Query, Timing]:
    """The query with its window rewritten as group keys, and the timing of the statement.

    `upserting` are the sources whose later rows replace earlier ones.
    """
    only = common_options(query.sources[0].properties) if len(query.sources) == 1 else options
    inner = inner_windows(query)
    column = time_column(inner or query)
    times = {
        ref.id: event_time_of(
            ref, common_options(ref.properties), column if len(query.sources) == 1 else None
        )
        for ref in query.sources
    }
    if inner is not None:
        left, timing = _windowed(inner, only, times)
        return query, replace(timing, inner=left)
    table = timed_table(query)
    if table is not None:
        delay = options.max_out_of_orderness_ms * 1000
        times[table] = EventTime(column, delay=delay, idle=options.idle_timeout.total_seconds())
    if upserting:
        return _windowed(query, only, times)
    named = rows_time(query)
    if named is not None and not any(time.column for time in times.values()):
        times = {name: replace(time, column=named) for name, time in times.items()}
    over = over_query(query, only, next(iter(times.values()), None))
    if over is not None:
        return over.query, Timing(over.windowing, times, over)
    return _windowed(query, only, times)


def _windowed(query: Query, options: CommonOptions, times: Mapping[str, EventTime]) -> tuple[Query, Timing]:
    # Stream joins wait for rows, by the watermark; their groups are never windows that close.
    left, windowing = (query, None) if joins_streams(query) else windowed(query, options)
    return left, Timing(windowing, times)
