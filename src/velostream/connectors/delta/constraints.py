"""Rows that a table of Delta Lake does not take: its conditions, and what a partition cannot hold."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONSTRAINT = "delta.constraints."
_INVARIANT = "delta.invariants"
_PLACE = "_velostream_place"
_AS_WRITTEN = {"datafusion.sql_parser.enable_ident_normalization": "false"}


def conditions(table: DeltaTable) -> dict[str, str]:
    """What must be true of every row, as SQL, each under a name."""
    found = {
        f'constraint "{name.removeprefix(_CONSTRAINT)}"': text
        for name, text in table.metadata().configuration.items()
        if name.startswith(_CONSTRAINT)
    }
    for field in table.schema().fields:
        if _INVARIANT in field.metadata:
            told = json.loads(str(field.metadata[_INVARIANT]))
            found[f'the invariant of "{field.name}"'] = told["expression"]["expression"]
    return found


def violations(rows: pa.Table, wanted: Mapping[str, str], place: Path) -> dict[int, str]:
    """Rows for which a condition is false or NULL, each with the reason.

    The conditions are asked of a copy of the rows in the folder `place`, by the engine that checks them when
    rows are written. One that it cannot answer is left to that check, which refuses all rows of a step.
    """
    found: dict[int, str] = {}
    if not wanted or not rows.num_rows:
        return found
    free = pa.schema([pa.field(field.name, field.type) for field in rows.schema])
    numbered = rows.cast(free).append_column(_PLACE, pa.array(range(rows.num_rows), pa.int64()))
    with tempfile.TemporaryDirectory(dir=place) as folder:
        copy = DeltaTable.create(Path(folder).as_uri(), numbered.schema)
        write_deltalake(copy, numbered, mode="append")
        asked = QueryBuilder(_AS_WRITTEN).register("rows", copy)
        for name, condition in wanted.items():
            query = f'SELECT "{_PLACE}" FROM rows WHERE ({condition}) IS NOT TRUE'
            try:
                places = pa.table(asked.execute(query).read_all()).column(0).to_pylist()
            except DeltaError:
                continue
            for row in places:
                found.setdefault(row, f"{name} does not hold: {condition}")
    return found


def unpartitionable(rows: pa.Table, partitions: list[str]) -> dict[int, str]:
    """Rows whose place among the partitions is that of NULL, although their value is not."""
    found: dict[int, str] = {}
    for name in partitions:
        if name in rows.column_names and pa.types.is_string(rows[name].type):
            for place in pc.indices_nonzero(pc.equal(rows[name], "")).to_pylist():
                found.setdefault(
                    place, f'column "{name}" is empty, and as a partition of Delta Lake it would become NULL'
                )
    return found
