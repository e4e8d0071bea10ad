"""Runs steps whose output is a Delta table: results go through files, in parts that fit the driver's memory.

Rows are divided by a hash of the key, so that the change of a part depends on no other part. All parts are
one commit.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.disk.private import make_folder
from velostream.engine.delta.reader import STAGING
from velostream.engine.runner import Computed, Runner, retracted_frames
from velostream.plan.plans import GroupsPlan
from velostream.spark.dataframes import brought, nullable
from velostream.spark.failures import translated
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from velostream.engine.delta.table import DeltaTable
    from velostream.engine.rows.shape import ResultShape
    from velostream.engine.runner import Halves
    from velostream.plan.plans import Plan

PART_ROWS = 200_000
"""Rows of a result that the driver holds at a time."""


@dataclass
class _Spilled:
    """A result in files."""

    folder: Path
    frame: DataFrame
    rows: int


def _read_here(spilled: _Spilled) -> pa.Table | None:
    """A small result, read without a Spark job; None where Parquet's types differ from Arrow's."""
    import pyarrow.dataset as ds
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(spilled.frame.schema, timezone="UTC")
    files = sorted(spilled.folder.glob("*.parquet"))
    if any(pa.types.is_duration(kind) or pa.types.is_interval(kind) for kind in schema.types) or not files:
        return None
    return nullable(ds.dataset(files, format="parquet", schema=schema).to_table())


class DeltaRunner(Runner):
    """Runs the SQL of a job whose output is a Delta table."""

    observes = False
    in_memory = False

    def __init__(self, spark: SparkSession, table: DeltaTable, plan: Plan, shape: ResultShape) -> None:
        super().__init__(spark)
        self._table = table
        self._plan = plan
        self._shape = shape
        self._spill: Path | None = None
        self._results: dict[tuple[str, str], _Spilled | None] = {}
        self._part, self._parts = 0, 1

    @contextmanager
    def parts(self) -> Iterator[Iterable[int]]:
        """See `Runner`: the parts of a step's result, which become one commit together."""
        if self._spill is not None:
            # A step that recomputes the whole result, within a part of the step that found that cheaper.
            yield (self._part,)
            return
        parent = self._table.folder / STAGING
        make_folder(parent)
        self._spill = Path(tempfile.mkdtemp(dir=parent))
        self._results, self._part, self._parts = {}, 0, 1
        try:
            with self._table.staged():
                yield self._each()
        finally:
            shutil.rmtree(self._spill, ignore_errors=True)
            self._spill = None

    def _each(self) -> Iterator[int]:
        """Part by part: how many there are is known once the first has computed the result."""
        while self._part < self._parts:
            yield self._part
            self._part += 1

    # --- results in files ---------------------------------------------------------------------------------

    def halves(self, sql: str, changes: Mapping[str, Halves], *, divisible: bool = True) -> Computed:
        """See `Runner`: the rows of the current part; the first part computes and spills all of them."""
        if ("plus", sql) not in self._results:
            self.show({key: halves.plus for key, halves in changes.items()})
            self._results["plus", sql] = plus = self._spilled(sql)
            retracted, minus = retracted_frames(changes), None
            if retracted is not None:
                self.show(retracted)
                minus = self._spilled(sql)
            self._results["minus", sql] = minus
            if divisible:
                self._divide(max(plus.rows, minus.rows if minus is not None else 0))
        added, removed = self._results["plus", sql], self._results["minus", sql]
        assert added is not None
        return Computed(self._of_part(added), None if removed is None else self._of_part(removed))

    def whole(self, sql: str) -> pa.Table:
        """See `Runner`: the rows of the current part, as in `halves`."""
        if ("whole", sql) not in self._results:
            self._results["whole", sql] = whole = self._spilled(sql)
            self._divide(whole.rows)
        spilled = self._results["whole", sql]
        assert spilled is not None
        return self._of_part(spilled)

    def _divide(self, rows: int) -> None:
        self._parts = max(1, -(-rows // PART_ROWS))

    def _spilled(self, sql: str) -> _Spilled:
        import pyarrow.parquet as pq

        assert self._spill is not None
        folder = self._spill / f"{len(self._results)}-{len(list(self._spill.iterdir()))}"
        with translated():
            result = self.spark.sql(sql)
            result.write.parquet(str(folder))
            frame = self.spark.read.schema(result.schema).parquet(str(folder))
        rows = sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
        return _Spilled(folder, frame, rows)

    def _of_part(self, spilled: _Spilled) -> pa.Table:
        frame = spilled.frame
        columns = self._dividing(frame)
        if self._parts > 1 and columns:
            names = ", ".join(map(quote, columns))
            frame = frame.where(f"pmod(xxhash64({names}), {self._parts}) = {self._part}")
        elif self._part:
            frame = frame.where("false")
        elif (rows := _read_here(spilled)) is not None:
            return rows
        with translated():
            return brought(frame)

    def _dividing(self, frame: DataFrame) -> tuple[str, ...]:
        """The columns by which rows are divided: the key, else all columns of plain types."""
        plan = self._plan
        if isinstance(plan, GroupsPlan):
            return plan.keys
        if self._shape.key:
            names = self._shape.physical.names
            # A query over a derived relation may rename its columns; the order is the same.
            return tuple(
                name if name in frame.columns else frame.columns[names.index(name)]
                for name in self._shape.key
            )
        kinds = {field.name: field.dataType.typeName() for field in frame.schema}
        return tuple(
            name for name, kind in kinds.items() if kind not in {"array", "struct", "map", "variant"}
        )
