"""Changes by key: data files that hold one of the keys are written again, without its rows.

pyiceberg's own `upsert` and `overwrite` take an expression with a term for each key, which takes seconds for
ten thousand keys. Here keys are compared as columns.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.io.pyarrow import ArrowScan

from velostream.connectors.lakes.changes import among, key_tuples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

_COMPARED = (bool, int, str, date, datetime, Decimal)


class Rewritten:
    """A data file that held rows of the keys."""

    def __init__(self, file: DataFile, kept: pa.Table, found: pa.Table) -> None:
        self.file = file
        self.kept = kept
        """The rows of other keys."""
        self.found = found
        """The rows of the keys."""


def rewritten(table: Table, keys: pa.Table) -> Iterator[Rewritten]:
    """The data files that hold rows of these keys, one at a time."""
    if not keys.num_rows:
        return
    for task in table.scan(row_filter=_bounds(keys)).plan_files():
        if pc.any(among(_read(table, task, keys.column_names).cast(keys.schema), keys)).as_py():
            rows = _read(table, task, None)
            found = among(rows.select(keys.column_names).cast(keys.schema), keys)
            yield Rewritten(task.file, rows.filter(pc.invert(found)), rows.filter(found))


def filled(added: pa.Table, found: pa.Table, key: Sequence[str], written: Sequence[str]) -> pa.Table:
    """The rows that are added, with the values that replaced rows have in columns which are not written."""
    others = [name for name in added.column_names if name not in written]
    if not others or not found.num_rows:
        return added
    places = {row: place for place, row in enumerate(key_tuples(found.select(list(key))))}
    taken = pa.array([places.get(row) for row in key_tuples(added.select(list(key)))], pa.int64())
    for name in others:
        field = added.schema.field(name)
        kept = found[name].take(taken).cast(field.type)
        added = added.set_column(added.schema.get_field_index(name), field, kept)
    return added


def _read(table: Table, task: FileScanTask, columns: Sequence[str] | None) -> pa.Table:
    schema = table.schema()
    wanted = schema if columns is None else schema.select(*columns)
    return ArrowScan(table.metadata, table.io, wanted, AlwaysTrue()).to_table([task])


def _bounds(keys: pa.Table) -> BooleanExpression:
    """Limits of the keys, by which files are left unread."""
    found: BooleanExpression = AlwaysTrue()
    for name in keys.column_names:
        if keys[name].null_count or pa.types.is_floating(keys[name].type):
            continue
        try:
            ends: dict[str, Any] = pc.min_max(keys[name]).as_py()
        except (ValueError, OverflowError):
            # Python has no such time.
            continue
        if isinstance(ends["min"], _COMPARED) and not isinstance(ends["min"], bool):
            found = And(found, _limit(">=", name, ends["min"]), _limit("<=", name, ends["max"]))
    return found


def _limit(sign: str, name: str, value: Any) -> BooleanExpression:
    kind = GreaterThanOrEqual if sign == ">=" else LessThanOrEqual
    return kind(name, value)  # type: ignore[call-arg, arg-type, misc, unused-ignore]
