"""A staged commit: added rows and the numbers of removed rows are collected in files, then committed at once.

However many rows a commit has, the driver holds one part of them at a time.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.disk.private import make_folder, open_file
from velostream.model.columns import DELTA_GONE, DELTA_ROW, SHOWN
from velostream.spark import delta
from velostream.spark.dataframes import empty_frame
from velostream.spark.failures import translated
from velostream.sql.types import quote, spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from velostream.engine.delta.commit_metadata import State
    from velostream.engine.delta.version import DeltaVersion
    from velostream.model.changes import Commit
    from velostream.model.tables import TableSpec


class Stage:
    """Collects the changes of one commit; `finish` makes them one Delta commit."""

    def __init__(self, folder: Path, spec: TableSpec, state: State) -> None:
        make_folder(folder)
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self._spec = spec
        self._before = state
        self._state = state
        self._files = 0
        self._removed: list[int] = []
        """The lowest and highest number of removed rows, part by part."""
        self._replaces = False
        self.commit: Commit | None = None

    # --- collecting ---------------------------------------------------------------------------------------

    def change(self, added: pa.Table, removed: pa.Table, numbers: np.ndarray, commit: Commit) -> None:
        """Stage added physical rows, and removed rows with their numbers."""
        self.commit = commit
        self._add(added, "added")
        if len(numbers):
            self._write(pa.table({DELTA_ROW: pa.array(numbers, pa.int64())}), "removed")
            self._removed += [int(numbers.min()), int(numbers.max())]
        state = self._state
        self._state = replace(
            state,
            rows=state.rows + _visible(added) - _visible(removed),
            changed=state.changed + added.num_rows + removed.num_rows,
        )

    def replacement(self, rows: pa.Table, commit: Commit) -> None:
        """Stage a part of the rows that will replace the whole content."""
        self.commit = commit
        self._replaces = True
        self._write(rows, "whole")

    def _add(self, rows: pa.Table, kind: str) -> None:
        if rows.num_rows:
            first = self._state.next_row
            numbers = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
            self._write(rows.append_column(DELTA_ROW, numbers), kind)
            self._state = replace(self._state, next_row=first + rows.num_rows)

    def _write(self, rows: pa.Table, kind: str) -> None:
        import pyarrow.parquet as pq

        target = self.folder / kind
        make_folder(target)
        with open_file(target / f"{self._files:06d}.parquet", "wb") as out:
            pq.write_table(rows, out, compression="lz4")
        self._files += 1

    # --- committing ---------------------------------------------------------------------------------------

    def finish(self, spark: SparkSession, path: Path, version: DeltaVersion) -> State:
        """The state after the commit; equal in `number` to the one before when no row changed."""
        assert self.commit is not None
        if self._replaces:
            self._difference(spark, version)
        added = (self.folder / "added").is_dir()
        state = replace(self._state, sequence=self._before.sequence + 1, commit=self.commit)
        if not added and not self._removed:
            return state
        state = replace(state, number=self._before.number + 1)
        said = state.text()
        rows = self._staged(spark, "added")
        if not self._removed:
            create = self._before.physical is None
            # One file for a few rows: with a file per core and commit, files would soon be many.
            few = self._state.changed - self._before.changed <= _FEW
            delta.append(rows.coalesce(1) if few else rows, path, said, state.sequence, create=create)
            return state
        gone = self._staged(spark, "removed").selectExpr("*", f"true AS {DELTA_GONE}")
        source = gone.unionByName(rows.selectExpr("*", f"false AS {DELTA_GONE}"), allowMissingColumns=True)
        lowest, highest = min(self._removed), max(self._removed)
        delta.merge(spark, path, source, lowest, highest, said, state.sequence)
        return state

    def _staged(self, spark: SparkSession, kind: str) -> DataFrame:
        schema = pa.schema([]) if kind == "removed" else self._spec.schema
        if kind != "whole":
            schema = schema.append(pa.field(DELTA_ROW, pa.int64()))
        target = self.folder / kind
        if not target.is_dir():
            return empty_frame(spark, schema)
        ddl = ", ".join(f"{quote(field.name)} {spark_ddl(field.type)}" for field in schema)
        with translated():
            return spark.read.schema(ddl).parquet(str(target))

    def _difference(self, spark: SparkSession, version: DeltaVersion) -> None:
        """Compute the rows to add and remove to get the staged content; equal rows cancel out."""
        from pyspark.sql import Window, functions

        names = list(self._spec.schema.names)
        columns = [quote(name) for name in names]
        counted = Window.partitionBy(*columns).orderBy(DELTA_ROW)
        numbered = functions.row_number().over(counted)
        numbers = functions.monotonically_increasing_id() + self._before.next_row
        new = self._staged(spark, "whole").withColumn(DELTA_ROW, numbers).withColumn("__nth", numbered)
        old = version.all_rows(spark).withColumn("__nth", numbered)
        halves = []
        for mine, other in ((new, old), (old, new)):
            mine, other = mine.alias("m"), other.alias("o")
            same = functions.expr(" AND ".join(f"m.{each} <=> o.{each}" for each in (*columns, "`__nth`")))
            halves.append(mine.join(other, same, "left_anti").drop("__nth"))
        with translated():
            for kind, frame in zip(("added", "removed"), halves, strict=True):
                frame.write.parquet(str(self.folder / "found" / kind))
        added = self._found(spark, "added", self._spec.schema.append(pa.field(DELTA_ROW, pa.int64())))
        removed = self._found(spark, "removed", self._spec.schema.append(pa.field(DELTA_ROW, pa.int64())))
        came, seen, _, last = _figures(added, self._spec)
        went, unseen, first, end = _figures(removed, self._spec)
        state = self._state
        self._state = replace(
            state,
            rows=state.rows + seen - unseen,
            changed=state.changed + came + went,
            next_row=max(state.next_row, last + 1),
        )
        if came:
            (self.folder / "found" / "added").rename(self.folder / "added")
        if went:
            (self.folder / "found" / "removed").rename(self.folder / "removed")
            self._removed = [first, end]

    def _found(self, spark: SparkSession, kind: str, schema: pa.Schema) -> DataFrame:
        ddl = ", ".join(f"{quote(field.name)} {spark_ddl(field.type)}" for field in schema)
        return spark.read.schema(ddl).parquet(str(self.folder / "found" / kind))

    def close(self) -> None:
        """Delete the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


_FEW = 50_000


def _visible(rows: pa.Table) -> int:
    if SHOWN not in rows.schema.names:
        return int(rows.num_rows)
    return int(pc.sum(rows.column(SHOWN)).as_py() or 0)


def _figures(frame: DataFrame, spec: TableSpec) -> tuple[int, int, int, int]:
    """The number of rows, of visible rows, and the lowest and highest row number (-1: none)."""
    seen = f"count_if({SHOWN})" if SHOWN in spec.schema.names else "count(*)"
    with translated():
        found = frame.selectExpr(
            "count(*) n", f"{seen} s", f"min({DELTA_ROW}) lo", f"max({DELTA_ROW}) hi"
        ).toArrow()
    n, s, lowest, highest = (column[0].as_py() for column in found.columns)
    return n, s, -1 if lowest is None else lowest, -1 if highest is None else highest
