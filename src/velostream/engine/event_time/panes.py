"""Sliding windows from panes: groups of panes merged into groups of windows; see `plan.time.panes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.kinds.aggregation import Aggregation
from velostream.engine.rows.group_keys import micros_of
from velostream.engine.rows.multisets import codes
from velostream.plan.groups import merge as merging
from velostream.plan.time.panes import pane_sql

if TYPE_CHECKING:
    from velostream.engine.rows.shape import ResultShape
    from velostream.model.windows import Windowing
    from velostream.plan.plans import GroupsPlan


class PaneAggregation(Aggregation):
    """Where windows overlap, Spark aggregates panes, which are merged into windows here."""

    def __init__(self, plan: GroupsPlan, shape: ResultShape, sql: str) -> None:
        super().__init__(plan, shape)
        self.sql = sql

    def groups(self, rows: pa.Table) -> pa.Table:
        """See `Aggregation`."""
        assert self.plan.windowing is not None
        return super().groups(windows_of(self.plan, self.plan.windowing, rows))


def aggregation(plan: GroupsPlan, shape: ResultShape) -> Aggregation:
    """How the rows of a batch become windows."""
    # Panes add in another order than Spark would, which changes sums of doubles.
    sql = None if shape.inexact else pane_sql(plan)
    return Aggregation(plan, shape) if sql is None else PaneAggregation(plan, shape, sql)


def windows_of(plan: GroupsPlan, windowing: Windowing, panes: pa.Table) -> pa.Table:
    """One row per group and window, with merged accumulators; groups without a time are returned unchanged.

    Spark aggregates each input row once, into the pane of one advance that contains it. A window of N
    advances is N panes, so each pane's accumulators are merged into N windows here, instead of each row by
    Spark.
    """
    timeless = pc.is_null(panes.column(windowing.start))
    timed = panes.filter(pc.invert(timeless))
    if timed.num_rows == 0:
        return panes
    # A pane that starts at p belongs to the windows that start at p, p - advance, … p - (N - 1) * advance.
    each = windowing.size // windowing.advance
    back = np.tile(np.arange(each) * windowing.advance, timed.num_rows)
    pane = np.repeat(np.arange(timed.num_rows), each)
    starts = micros_of(timed.column(windowing.start)).to_numpy()[pane] - back
    group = _numbers(timed, [name for name in plan.keys if name not in (windowing.start, windowing.end)])[
        pane
    ]
    # Sorted, the panes of one window are neighbours, which is what `combine` needs.
    order = np.lexsort((starts, group))
    pane, starts, group = pane[order], starts[order], group[order]
    first = np.ones(len(order), bool)
    first[1:] = (group[1:] != group[:-1]) | (starts[1:] != starts[:-1])
    rows = timed.take(pa.array(pane))
    for name, bounds in ((windowing.start, starts), (windowing.end, starts + windowing.size)):
        place, kind = rows.schema.get_field_index(name), rows.schema.field(name).type
        rows = rows.set_column(place, rows.schema.field(name), pa.array(bounds).cast(kind))
    made = merging.combine(plan, rows, np.cumsum(first) - 1)
    return pa.concat_tables([made, panes.filter(timeless).cast(made.schema)])


def _numbers(rows: pa.Table, names: list[str]) -> np.ndarray:
    """For each row a number, which rows with equal values in these columns share; null equals null."""
    if not names:
        return np.zeros(rows.num_rows, np.int64)
    numbers: dict[object, int] = {}
    each = (numbers.setdefault(code, len(numbers)) for code in codes(rows, names))
    return np.fromiter(each, np.int64, count=rows.num_rows)
