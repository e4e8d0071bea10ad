"""How a table that is made is partitioned: by columns, or by what Iceberg computes of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)

from velostream.connectors.lakes.columns import names_of
from velostream.errors import SinkConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyiceberg.table import Table
    from pyiceberg.table.update.spec import UpdateSpec

_TIMES: Mapping[str, Callable[[], Transform[Any, Any]]] = {
    "year": YearTransform,
    "month": MonthTransform,
    "day": DayTransform,
    "hour": HourTransform,
}
_SIZES: Mapping[str, Callable[[int], Transform[Any, Any]]] = {
    "bucket": BucketTransform,
    "truncate": TruncateTransform,
}
_CALL = re.compile(r"(?P<function>\w+)\s*\(\s*(?:(?P<size>\d+)\s*,\s*)?(?P<column>[^(),]+?)\s*\)")
NEWEST_FORMAT = 2
_Partition = tuple[str, Transform[Any, Any]]


def partitions(text: str | None) -> list[_Partition]:
    """Columns, and what is computed of them: `day(at), bucket(16, id), region`."""
    return [_partition(part) for part in names_of(text)]


def partition(update: UpdateSpec, wanted: list[_Partition]) -> None:
    """Partition a table that is being made."""
    for column, transform in wanted:
        update.add_field(column, transform)


def check_partitions(name: str, table: Table, wanted: list[_Partition]) -> None:
    """Raise SinkConfigError where the table is partitioned in another way than the statement says."""
    schema = table.schema()
    there = [(schema.find_column_name(field.source_id), field.transform) for field in table.spec().fields]
    if wanted and [(column, str(how)) for column, how in wanted] != [(col, str(how)) for col, how in there]:
        shown = ", ".join(f"{column} by {how}" for column, how in there) or "nothing"
        raise SinkConfigError(
            f"{name} is partitioned by {shown}, not as the statement says",
            hint='leave out "partition.by": it is for a table that is created',
        )
    check_partition_types(schema.as_arrow(), [column for column, _ in there if column])


def check_partition_types(schema: pa.Schema, columns: Sequence[str]) -> None:
    """Raise SinkConfigError where a partition is no column, or one that rows cannot be parted by."""
    for column in columns:
        # A field of a struct is named with a dot, and found in the table.
        if column not in schema.names and "." not in column:
            raise SinkConfigError(f'"partition.by" names "{column}", which is no column', hint="select it")
        kind = schema.field(column).type if column in schema.names else pa.int32()
        if pa.types.is_floating(kind) or pa.types.is_nested(kind):
            raise SinkConfigError(
                f'column "{column}" is {kind}, by which no table is partitioned',
                hint="partition by a whole number, a text, a date or a time",
            )


def check_format(name: str, table: Table) -> None:
    """Raise SinkConfigError where the table is of a version of the format that is not written."""
    version = table.metadata.format_version
    if version > NEWEST_FORMAT:
        raise SinkConfigError(
            f"{name} has version {version} of Iceberg's format, and up to {NEWEST_FORMAT} is written",
            hint='make a table with "format-version" = "2"',
        )


def _partition(text: str) -> _Partition:
    call = _CALL.fullmatch(text)
    if call is None and "(" not in text:
        return text, IdentityTransform()
    if call is not None and call["size"] is None and call["function"] in _TIMES:
        return call["column"], _TIMES[call["function"]]()
    if call is not None and call["size"] is not None and call["function"] in _SIZES:
        return call["column"], _SIZES[call["function"]](int(call["size"]))
    raise SinkConfigError(
        f'"partition.by" has "{text}", which is no partition',
        hint="write a column, year(c), month(c), day(c), hour(c), bucket(16, c) or truncate(4, c)",
    )
