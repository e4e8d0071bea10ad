"""A pipeline into a table that outgrows memory: results go through files, in parts that the driver can hold.

Rows are divided by a hash of the key, so what a part changes depends on no other part. All parts together
are one commit.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.engine.delta.reading import STAGING
from velostream.engine.delta.table import DeltaTable
from velostream.engine.inputs.lookups import LookupFeed
from velostream.engine.kinds.pipeline import Pipeline, Progress
from velostream.engine.outputs.outputs import table_of
from velostream.model.private import make_folder
from velostream.plan.plans import GroupsPlan, RecomputePlan
from velostream.spark.dataframes import brought, nullable
from velostream.spark.failures import translated
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from velostream.engine.inputs.inputs import Halves
    from velostream.model.changes import BadRow, Commit, SourceOffsets

PART_ROWS = 200_000
"""Rows of a result that the driver takes at a time."""


@dataclass
class _Spilled:
    """A result in files."""

    folder: Path
    frame: DataFrame
    rows: int


def _read_here(spilled: _Spilled) -> pa.Table | None:
    """A small result without another job of Spark's; None where Parquet has other types than Arrow."""
    import pyarrow.dataset as ds
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(spilled.frame.schema, timezone="UTC")
    files = sorted(spilled.folder.glob("*.parquet"))
    if any(pa.types.is_duration(kind) or pa.types.is_interval(kind) for kind in schema.types) or not files:
        return None
    return nullable(ds.dataset(files, format="parquet", schema=schema).to_table())


class DeltaPipeline(Pipeline):
    """Runs the plan of a job whose output is a Delta table."""

    _observes = False
    _spill: Path | None = None
    _results: dict[tuple[str, str], _Spilled | None]
    _part = 0
    _parts = 1

    @property
    def _table(self) -> DeltaTable:
        table = table_of(self._output)
        assert isinstance(table, DeltaTable)
        return table

    def advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        """Bring the table from `start` to `end` in one commit."""
        return self._in_parts(lambda: Pipeline.advance(self, start, end, commit, careful=careful))

    def advance_around_overflow(
        self,
        start: SourceOffsets | None,
        end: SourceOffsets,
        commit: Commit,
        keep: Callable[[list[BadRow]], None],
    ) -> Progress:
        """As `advance`, without the groups whose sums do not fit."""
        whole = super().advance_around_overflow
        return self._in_parts(lambda: whole(start, end, commit, keep))

    def _in_parts(self, step: Callable[[], Progress]) -> Progress:
        if self._spill is not None:
            return step()
        parent = self._table.folder / STAGING
        make_folder(parent)
        self._spill = Path(tempfile.mkdtemp(dir=parent))
        self._results, self._part, self._parts = {}, 0, 1
        rows_in = rows_out = 0
        try:
            with self._table.staged():
                while self._part < self._parts:
                    progress = step()
                    rows_in += progress.rows_in
                    rows_out += progress.rows_out
                    self._part += 1
            return Progress(rows_in, rows_out)
        finally:
            shutil.rmtree(self._spill, ignore_errors=True)
            self._spill = None

    # --- results in files ---------------------------------------------------------------------------------

    def _plus(self, sql: str, changes: dict[str, Halves]) -> pa.Table:
        if ("plus", sql) not in self._results:
            self.feed.register({key: halves.plus for key, halves in changes.items()})
            self._results["plus", sql] = plus = self._spilled(sql)
            minus: _Spilled | None = None
            if any(halves.minus is not None for halves in changes.values()):
                self.feed.register(
                    {
                        key: halves.minus if halves.minus is not None else halves.plus.where("false")
                        for key, halves in changes.items()
                    }
                )
                minus = self._spilled(sql)
            self._results["minus", sql] = minus
            self._divide(max(plus.rows, minus.rows if minus is not None else 0))
        spilled = self._results["plus", sql]
        assert spilled is not None
        return self._of_part(spilled)

    def _minus(self, sql: str, changes: dict[str, Halves]) -> pa.Table | None:
        spilled = self._results["minus", sql]
        return None if spilled is None else self._of_part(spilled)

    def _divide(self, rows: int) -> None:
        joined = isinstance(self.feed, LookupFeed) and self.feed.gone is not None
        if not joined:
            # Rows that a stream took back are looked up by their positions, all at once.
            self._parts = max(1, -(-rows // PART_ROWS))

    def _spilled(self, sql: str) -> _Spilled:
        import pyarrow.parquet as pq

        assert self._spill is not None
        folder = self._spill / f"{len(self._results)}-{len(list(self._spill.iterdir()))}"
        with translated():
            result = self._spark.sql(sql)
            result.write.parquet(str(folder))
            frame = self._spark.read.schema(result.schema).parquet(str(folder))
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
        """The columns by which rows belong together: the key, else all that can be compared at a glance."""
        plan = self._plan
        if isinstance(plan, GroupsPlan):
            return plan.keys
        if self._shape.key:
            names = self._shape.physical.names
            # A query over a derived relation names its columns anew, in the same order.
            return tuple(
                name if name in frame.columns else frame.columns[names.index(name)]
                for name in self._shape.key
            )
        kinds = {field.name: field.dataType.typeName() for field in frame.schema}
        return tuple(
            name for name, kind in kinds.items() if kind not in {"array", "struct", "map", "variant"}
        )

    # --- everything anew ----------------------------------------------------------------------------------

    def _recompute(self, plan: RecomputePlan, end: SourceOffsets, commit: Commit) -> Progress:
        self.feed.register(self.feed.snapshot(end))
        return self._in_parts(lambda: self._replaced_by(plan.sql, commit))

    def rebuild(self, end: SourceOffsets, commit: Commit) -> Progress:
        """Compute the whole result anew as of `end`."""
        plan = self._plan
        if isinstance(plan, RecomputePlan):
            return self._recompute(plan, end, commit)
        sql = self._whole(end)
        return self._in_parts(lambda: self._replaced_by(sql, commit))

    def _replaced_by(self, sql: str, commit: Commit) -> Progress:
        if ("whole", sql) not in self._results:
            self._results["whole", sql] = whole = self._spilled(sql)
            self._parts = max(1, -(-whole.rows // PART_ROWS))
        spilled = self._results["whole", sql]
        assert spilled is not None
        found = self._of_part(spilled)
        rows = self._finished(found)
        self._table.replace_all(rows, commit)
        return Progress(found.num_rows, rows.num_rows)
