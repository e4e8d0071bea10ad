"""Merges accumulators of a batch into the stored ones, and computes aggregate values from them.

Everything here is Arrow: exact, vectorised, and without Spark. Decimals are added in 256 bits and cast back,
so that an overflow is an error and never a wrong digit.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.errors import InternalError, RowError
from velostream.formats.columns.nested_keys import grouped
from velostream.model.columns import GROUP_ROWS
from velostream.plan.groups.aggregates import Accumulator, Aggregate, Finish, Merge

if TYPE_CHECKING:
    from velostream.plan.plans import GroupsPlan

_WIDE = 75
"""Digits in which decimals are added: far more than any stored type, one less than Arrow's maximum."""


def accumulator_columns(plan: GroupsPlan) -> list[tuple[str, Merge]]:
    """The accumulator columns of the plan, and how each is merged."""
    columns = [(GROUP_ROWS, Merge.ADD)]
    for aggregate in plan.aggregates:
        columns += [(accumulator.name, accumulator.merge) for accumulator in aggregate.accumulators]
    return columns


def net(plan: GroupsPlan, plus: pa.Table, minus: pa.Table | None) -> pa.Table:
    """One row per touched group: accumulators of added rows minus accumulators of retracted rows."""
    if minus is None or minus.num_rows == 0:
        return plus
    columns = accumulator_columns(plan)
    negated = minus.select(list(plan.keys))
    for name, merge in columns:
        if merge is not Merge.ADD:
            raise InternalError(f"accumulator {name} cannot be retracted")
        negated = negated.append_column(name, _negate(minus.column(name)))
    plus = plus.select([*plan.keys, *(name for name, _ in columns)])
    both = pa.concat_tables([_widened(plus, columns), _widened(negated, columns)])
    summed = grouped(both, plan.keys, [(n, "sum") for n, _ in columns])
    arrays = {name: summed.column(name) for name in plan.keys}
    for name, _ in columns:
        arrays[name] = _narrow(summed.column(f"{name}_sum"), plus.schema.field(name).type, name)
    return pa.table(arrays)


def merge(plan: GroupsPlan, stored: pa.Table, batch: pa.Table) -> pa.Table:
    """The new accumulators of the groups in `batch`; `stored` has the same keys in the same order."""
    arrays = {name: batch.column(name) for name in plan.keys}
    for name, how in accumulator_columns(plan):
        old, new = stored.column(name), batch.column(name)
        if how is Merge.ADD:
            arrays[name] = _add(old, new, name)
        else:
            arrays[name] = _extreme(old, new, how)
    return pa.table(arrays)


def combine(plan: GroupsPlan, rows: pa.Table, numbers: np.ndarray) -> pa.Table:
    """One row for each run of equal `numbers`, its accumulators merged; keys are those of its last row."""
    first = np.ones(len(numbers), bool)
    first[1:] = numbers[1:] != numbers[:-1]
    run = np.cumsum(first) - 1
    starts = np.flatnonzero(first)
    rank = np.arange(len(numbers)) - starts[run]
    made = rows.take(pa.array(starts))
    # All runs at once: first the second row of every run is merged in, then the third, and so on.
    for turn in range(1, int(rank.max(initial=0)) + 1):
        place = np.flatnonzero(rank == turn)
        merged = merge(plan, made.take(pa.array(run[place])), rows.take(pa.array(place)))
        order = np.arange(made.num_rows)
        order[run[place]] = made.num_rows + np.arange(len(place))
        made = pa.concat_tables([made, merged.select(made.schema.names).cast(made.schema)]).take(
            pa.array(order)
        )
    return made


def _add(old: pa.ChunkedArray, new: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    kind = old.type
    if pa.types.is_decimal(kind):
        wide = pa.decimal256(_WIDE, kind.scale)
        total = pc.add(_zero_for_null(old.cast(wide)), _zero_for_null(new.cast(wide)))
        return _narrow(total, kind, name)
    try:
        return pc.add_checked(_zero_for_null(old), _zero_for_null(new.cast(kind)))
    except pa.ArrowInvalid as exc:
        raise _overflow(name, kind) from exc


def _zero_for_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    zero = pa.scalar(Decimal(0) if pa.types.is_decimal(column.type) else 0, column.type)
    return pc.fill_null(column, zero)


def _negate(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_decimal(column.type):
        return pc.negate(column)
    return pc.negate_checked(column)


def _widened(table: pa.Table, columns: list[tuple[str, Merge]]) -> pa.Table:
    for name, _ in columns:
        kind = table.schema.field(name).type
        if pa.types.is_decimal(kind):
            index = table.schema.get_field_index(name)
            wide = table.column(name).cast(pa.decimal256(_WIDE, kind.scale))
            table = table.set_column(index, name, wide)
    return table


def _narrow(column: pa.ChunkedArray, kind: pa.DataType, name: str) -> pa.ChunkedArray:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as exc:
        raise _overflow(name, kind) from exc


class SumOverflowError(RowError):
    """A sum exceeded its type when batches were merged."""

    code = "job.sum_overflow"


def overflowed(plan: GroupsPlan, state: pa.Table) -> pa.Array:
    """Which groups have a sum that did not fit its type: it is null although there were values to add."""
    found = pa.array([False] * state.num_rows)
    for aggregate in plan.aggregates:
        if aggregate.finish in {Finish.SUM, Finish.AVG}:
            total, count = (state.column(a.name).combine_chunks() for a in aggregate.accumulators)
            found = pc.or_(found, pc.and_(pc.is_null(total), pc.greater(count, 0)))
    return found


def _overflow(name: str, kind: pa.DataType) -> SumOverflowError:
    return SumOverflowError(
        f"a sum does not fit into {kind}",
        detail=f"accumulator {name}",
        hint="cast the argument to a wider DECIMAL",
    )


def _extreme(old: pa.ChunkedArray, new: pa.ChunkedArray, how: Merge) -> pa.ChunkedArray:
    new = new.cast(old.type)
    later, earlier = (new, old) if how is Merge.MAX else (old, new)
    replaces = pc.or_kleene(pc.is_null(old), _greater(later, earlier))
    return pc.if_else(pc.fill_null(replaces, False), new, old)


def _greater(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    """`left > right` in Spark's order, in which NaN is greater than any other number."""
    if pa.types.is_boolean(left.type):
        left, right = left.cast(pa.int8()), right.cast(pa.int8())
    greater = pc.greater(left, right)
    if not pa.types.is_floating(left.type):
        return greater
    return pc.or_(greater, pc.and_(pc.is_nan(left), pc.invert(pc.is_nan(right))))


# --- values -----------------------------------------------------------------------------------------


def values(plan: GroupsPlan, state: pa.Table, types: pa.Schema) -> pa.Table:
    """Keys and aggregate values (`__v…`) of the groups in `state`; `types` are the types Spark gives them."""
    arrays = {name: state.column(name) for name in plan.keys}
    for aggregate in plan.aggregates:
        arrays[aggregate.value] = _value(aggregate, state, types.field(aggregate.value).type)
    return pa.table(arrays)


def _value(aggregate: Aggregate, state: pa.Table, kind: pa.DataType) -> pa.ChunkedArray:
    if aggregate.finish is Finish.ROWS:
        return state.column(GROUP_ROWS).cast(kind)
    first: Accumulator = aggregate.accumulators[0]
    column = state.column(first.name)
    if aggregate.finish in {Finish.COUNT, Finish.SAME}:
        return column if column.type == kind else column.cast(kind)
    count = state.column(aggregate.accumulators[1].name)
    empty = pc.equal(count, 0)
    if aggregate.finish is Finish.SUM:
        return pc.if_else(empty, pa.scalar(None, column.type), column).cast(kind)
    return average(column, count, kind)


def average(total: pa.ChunkedArray, count: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Totals by counts, rounded as Spark rounds; null where the count is 0."""
    if pa.types.is_duration(kind):
        pairs = zip(total.cast(pa.int64()).to_pylist(), count.to_pylist(), strict=True)
        micros = [_divide_half_up(s, n) if n else None for s, n in pairs]
        return pa.chunked_array([pa.array(micros, pa.int64()).cast(kind)])
    if not pa.types.is_decimal(kind):
        divisor = pc.if_else(pc.equal(count, 0), pa.scalar(None, count.type), count)
        # Past 2^53 not every integer is a double: like Spark, take the nearest one.
        whole = pc.cast(total, pa.float64(), safe=False)
        return pc.divide(whole, divisor.cast(pa.float64())).cast(kind)
    scale = total.type.scale if pa.types.is_decimal(total.type) else 0
    results = [
        None if not n else _spark_quotient(int(Decimal(s).scaleb(scale)), scale, n, kind.scale)
        for s, n in zip(total.to_pylist(), count.to_pylist(), strict=True)
    ]
    return pa.chunked_array([pa.array(results, kind)])


_DIVISION_SCALE = 39
"""Spark divides decimals to this scale, half up, before it rounds to the scale of the result."""


def _spark_quotient(unscaled: int, scale: int, count: int, result_scale: int) -> Decimal:
    quotient = _divide_half_up(unscaled * 10 ** (_DIVISION_SCALE - scale), count)
    rounded = _divide_half_up(quotient, 10 ** (_DIVISION_SCALE - result_scale))
    sign, digits = (1, str(-rounded)) if rounded < 0 else (0, str(rounded))
    return Decimal((sign, tuple(map(int, digits)), -result_scale))


def _divide_half_up(numerator: int, denominator: int) -> int:
    magnitude = (2 * abs(numerator) + denominator) // (2 * denominator)
    return -magnitude if numerator < 0 else magnitude
