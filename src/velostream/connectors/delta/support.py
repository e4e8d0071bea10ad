"""What a table of Delta Lake asks of those who write it, and whether it can be met."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.errors import SinkConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable

_NOT_IN_NAMES = " ,;{}()\n\t="
_MAPPED = "delta.columnMapping.mode"
_APPEND_ONLY = "delta.appendOnly"
_DELETION_VECTORS = "deletionVectors"


def check_support(name: str, table: DeltaTable, *, upserts: bool) -> None:
    """Raise SinkConfigError where the table has a property with which rows cannot be written as asked."""
    told = table.metadata().configuration
    if told.get(_MAPPED, "none") != "none":
        raise SinkConfigError(
            f"{name} maps its columns to other names ({_MAPPED} = {told[_MAPPED]}), which is not written",
            hint="write to a table without column mapping",
        )
    if upserts and told.get(_APPEND_ONLY, "false").lower() == "true":
        raise SinkConfigError(
            f"{name} takes no updates and deletions: {_APPEND_ONLY} is true",
            hint='set it to false; or write rows that are only added, WITH ("mode" = "append")',
        )
    if upserts and _DELETION_VECTORS in (table.protocol().reader_features or ()):
        raise SinkConfigError(
            f"{name} has deletion vectors, and rows of it cannot be updated by key",
            hint="drop the feature: ALTER TABLE … DROP FEATURE deletionVectors; "
            'or write rows that are only added, WITH ("mode" = "append")',
        )


def check_names(schema: pa.Schema) -> None:
    """Raise SinkConfigError for a column whose name a new table cannot have."""
    for name in schema.names:
        if set(_NOT_IN_NAMES) & set(name):
            raise SinkConfigError(
                f'column "{name}" has a character that names in Delta Lake do not have: one of '
                "space , ; { } ( ) =",
                hint="give it another name with AS",
            )


def check_partitions(name: str, table: DeltaTable, wanted: Sequence[str]) -> None:
    """Raise SinkConfigError where the table is partitioned in another way, or by what has no exact text."""
    there = table.metadata().partition_columns
    if wanted and list(wanted) != there:
        raise SinkConfigError(
            f"{name} is partitioned by {', '.join(there) or 'nothing'}, not by {', '.join(wanted)}",
            hint='leave out "partition.by": it is for a table that is created',
        )
    check_partition_types(pa.schema(table.schema().to_arrow()), there)


def check_partition_types(schema: pa.Schema, partitions: Sequence[str]) -> None:
    """Raise SinkConfigError where a partition is no column, or one whose values have no exact text."""
    for column in partitions:
        if column not in schema.names:
            raise SinkConfigError(f'"partition.by" names "{column}", which is no column', hint="select it")
        kind = schema.field(column).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise SinkConfigError(
                f'column "{column}" is {kind}, by which no table is partitioned',
                hint="partition by a number, a text, a date or a time",
            )
