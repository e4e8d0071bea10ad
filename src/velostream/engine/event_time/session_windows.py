"""Session windows across batches: sessions of a batch are merged with the stored ones that they overlap.

Spark computes the sessions of a batch. Merging one with a stored session makes it longer, so that it may
overlap the next: all sessions of a group are sorted by start, and a new one begins where a start lies after
the ends of all before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.rows.group_keys import distinct_keys, micros_of
from velostream.engine.rows.multisets import by_nulls, codes
from velostream.plan.groups import merge as merging

if TYPE_CHECKING:
    from velostream.model.windows import Windowing
    from velostream.plan.plans import GroupsPlan
    from velostream.serving.contract.table import Table


def joined_sessions(
    plan: GroupsPlan, windowing: Windowing, table: Table, batch: pa.Table, closed: int | None
) -> tuple[pa.Table, pa.Table]:
    """The sessions that the batch creates or extends, and the keys of the stored sessions that they replace.

    The key of a session contains its bounds, so a stored session that grows is deleted and written anew.
    Stored sessions that had closed at the watermark `closed` are not extended.
    """
    stored = _open_sessions(plan, windowing, table, batch, closed)
    both = pa.concat_tables([stored, batch.select(stored.schema.names).cast(stored.schema)])
    if both.num_rows == 0:
        return batch, stored.select(plan.keys)
    from_batch = np.arange(both.num_rows) >= stored.num_rows
    order, session = _sessions(plan, windowing, both)
    ordered, new = both.take(pa.array(order)), from_batch[order]
    # Stored sessions of the same groups that no session of the batch overlaps stay as they are.
    touched = np.zeros(session[-1] + 1, bool)
    touched[session[new]] = True
    kept = pa.array(touched[session])
    rows, numbers = ordered.filter(kept), session[touched[session]]
    made = merging.combine(plan, rows, numbers)
    # `combine` keeps the key of a single row: the bounds are widened to all sessions that were merged.
    begins = np.flatnonzero(np.diff(numbers, prepend=-1))
    for name, outermost in ((windowing.start, np.minimum), (windowing.end, np.maximum)):
        bound = (
            pa.array(outermost.reduceat(micros_of(rows.column(name)).to_numpy(), begins))
            if len(begins)
            else pa.array([])
        )
        kind = rows.schema.field(name).type
        made = made.set_column(made.schema.get_field_index(name), name, bound.cast(pa.int64()).cast(kind))
    replaced = ordered.filter(pa.array(touched[session] & ~new)).select(plan.keys)
    return made, replaced


def continued(
    plan: GroupsPlan, windowing: Windowing, table: Table, batch: pa.Table, closed: int | None
) -> pa.Array:
    """For each session of a batch, whether the merged session that it becomes part of is still open.

    Taken alone such a session may have ended before the watermark: its rows are late only when nothing that
    is open reaches them.
    """
    stored = _open_sessions(plan, windowing, table, batch, closed)
    both = pa.concat_tables([stored, batch.select(stored.schema.names).cast(stored.schema)])
    order, session = _sessions(plan, windowing, both)
    ends = micros_of(both.column(windowing.end)).to_numpy()[order]
    last = np.full(int(session[-1]) + 1 if len(session) else 0, np.iinfo(np.int64).min)
    np.maximum.at(last, session, ends)
    alive = np.empty(both.num_rows, bool)
    alive[order] = last[session] + windowing.grace > (closed if closed is not None else -(2**62))
    return pa.array(alive[stored.num_rows :])


def _open_sessions(
    plan: GroupsPlan, windowing: Windowing, table: Table, batch: pa.Table, closed: int | None
) -> pa.Table:
    """The stored sessions of the batch's groups that had not closed at the watermark, as accumulators."""
    names = [*plan.keys, *(name for name, _ in merging.accumulator_columns(plan))]
    groups = tuple(name for name in plan.keys if name not in (windowing.start, windowing.end))
    rows = stored_groups(table, batch.select(groups)).select(names)
    if closed is None:
        return rows
    return rows.filter(pc.greater(micros_of(rows.column(windowing.end)), closed - windowing.grace))


def stored_groups(table: Table, keys: pa.Table) -> pa.Table:
    """The stored rows of these groups, which are all their sessions; null equals null."""
    version = table.version_object
    if not keys.num_columns:
        return version.physical()
    found = [version.spec.schema.empty_table()]
    # The index finds no nulls: groups are looked up by their columns that are not null, then filtered.
    for some in by_nulls(distinct_keys(keys)):
        absent = [name for name in some.schema.names if some.column(name).null_count]
        known = [name for name in some.schema.names if name not in absent]
        rows = version.physical_where(known, some.select(known)) if known else version.physical()
        for name in absent:
            rows = rows.filter(pc.is_null(rows.column(name)))
        found.append(rows)
    return pa.concat_tables(found)


def _sessions(plan: GroupsPlan, windowing: Windowing, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The places of the rows sorted by group and start, and for each the number of its merged session."""
    groups = [name for name in plan.keys if name not in (windowing.start, windowing.end)]
    numbers: dict[object, int] = {}
    group = np.fromiter(
        (
            numbers.setdefault(code, len(numbers))
            for code in (codes(rows, groups) if groups else [0] * rows.num_rows)
        ),
        np.int64,
        count=rows.num_rows,
    )
    starts, ends = (
        micros_of(rows.column(windowing.start)).to_numpy(),
        micros_of(rows.column(windowing.end)).to_numpy(),
    )
    order = np.lexsort((starts, group))
    group, starts, ends = group[order], starts[order], ends[order]
    if not len(order):
        return order, order
    # The latest end so far within the group: a long session may end after several that start later. A loop,
    # since a cumulative maximum of NumPy would not restart with each group.
    furthest, reach, last = np.empty(len(ends), np.int64), 0, -1
    for number, (which, end) in enumerate(zip(group.tolist(), ends.tolist(), strict=True)):
        reach = end if which != last else max(reach, end)
        last = which
        furthest[number] = reach
    first = np.ones(len(order), bool)
    # As in Spark, a row exactly one gap after the last one belongs to the session: `>`, not `>=`.
    first[1:] = (group[1:] != group[:-1]) | (starts[1:] > furthest[:-1])
    return order, np.cumsum(first) - 1
