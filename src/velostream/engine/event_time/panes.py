"""The groups of panes as those of the windows that they make up; see `plan.time.panes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.rows.groups import micros_of
from velostream.engine.rows.multisets import codes
from velostream.plan.groups import merge as merging

if TYPE_CHECKING:
    from velostream.model.windows import Windowing
    from velostream.plan.plans import GroupsPlan


def windows_of(plan: GroupsPlan, windowing: Windowing, panes: pa.Table) -> pa.Table:
    """One row per group and window; rows without a time are in none, and stay as they are."""
    timeless = pc.is_null(panes.column(windowing.start))
    timed = panes.filter(pc.invert(timeless))
    if timed.num_rows == 0:
        return panes
    each = windowing.size // windowing.advance
    back = np.tile(np.arange(each) * windowing.advance, timed.num_rows)
    pane = np.repeat(np.arange(timed.num_rows), each)
    starts = micros_of(timed.column(windowing.start)).to_numpy()[pane] - back
    group = _numbers(timed, [name for name in plan.keys if name not in (windowing.start, windowing.end)])[
        pane
    ]
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
    """A number for each row, the same where these columns are."""
    if not names:
        return np.zeros(rows.num_rows, np.int64)
    numbers: dict[object, int] = {}
    each = (numbers.setdefault(code, len(numbers)) for code in codes(rows, names))
    return np.fromiter(each, np.int64, count=rows.num_rows)
