"""The read side of a table in Delta Lake: lookups, queries and changes."""

from __future__ import annotations

from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.delta import closed_state
from velostream.engine.delta import commit_metadata as state
from velostream.engine.delta.log import DeltaLog
from velostream.engine.delta.maintenance import Maintenance
from velostream.engine.delta.version import DeltaVersion
from velostream.engine.on_spark import SparkTable
from velostream.errors import (
    LaggingReaderError,
    TableError,
    VelostreamError,
)
from velostream.model.columns import KEY, MESSAGE_KEY, SHOWN, WEIGHT
from velostream.model.tables import TableSpec
from velostream.serving.columns.values import KeyCodec, to_python
from velostream.serving.contract.readable import FOUND
from velostream.serving.durable import description
from velostream.serving.sql.cache import one_value
from velostream.serving.table.publication import BATCH_ROWS, PublishedTable
from velostream.serving.table.record import Row, row_class
from velostream.serving.table.rows import to_table
from velostream.serving.table.schemas import align
from velostream.serving.table.stats import MemoryUse
from velostream.spark import delta
from velostream.spark.dataframes import brought, checked_cast
from velostream.spark.failures import translated
from velostream.sql.text.spark_text import SPARK
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from velostream.engine.delta.commit_metadata import State
    from velostream.engine.delta.staging import Stage
    from velostream.model.changes import Commit
    from velostream.serving.sql.questions import Questions
    from velostream.spark.delta import DeltaEngine

ROWS = "rows"
"""The Delta table within the folder of a table."""
STAGING = "staging"
_MOST_CHANGES = 200_000
"""Up to this many changed rows are read at once; more are read version by version."""
_VERSION = "_commit_version"
_WEIGHTS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}


@dataclass(frozen=True)
class LookedUp:
    """Stored rows that were looked up by key."""

    version: DeltaVersion
    keys: frozenset[Hashable]
    rows: pa.Table
    numbers: pa.ChunkedArray


class DeltaReader(PublishedTable, SparkTable):
    """Reads a Delta table. Every lookup is a Spark job; no rows are cached in this process."""

    _version: DeltaVersion

    def __init__(
        self,
        folder: Path,
        questions: Questions,
        delta: DeltaEngine,
        *,
        read_only: bool,
        clock: Callable[[], datetime],
    ) -> None:
        super().__init__(clock)
        self.folder = folder
        self._path = folder / ROWS
        self._description = description.read_spec(folder)
        self._spec = self._description.spec
        self._log = DeltaLog(self._path)
        self._delta = delta
        self._questions = questions
        self._read_only = read_only
        self._lock = RLock()
        self._questions_asked = 0
        self._stage: Stage | None = None
        self._looked_up: LookedUp | None = None
        self._writer_session: SparkSession | None = None
        self._maintenance = Maintenance(folder, self._path, self._log)
        if not read_only:
            self._maintenance.remove(folder / STAGING)
        noted = closed_state.check(folder, self._description, self._log)
        found = state.load(folder, self._log)
        closed_state.check_reached(folder, noted, found, self._log)
        self._show(found)

    def _show(self, at: State) -> None:
        self._publish(DeltaVersion(self._spec, at, self._path, self._delta))

    @property
    def version_object(self) -> DeltaVersion:
        """The newest version; it stays readable as long as its files are kept."""
        self.lifetime.check()
        return self._version

    @property
    def last_commit(self) -> Commit | None:
        """The newest commit; while a commit is staged in parts, that of its last part."""
        staged = self._stage.commit if self._stage is not None else None
        return staged or self._version.commit

    @property
    def held(self) -> tuple[int, int]:
        """The number of rows; they take next to no memory of this process."""
        return len(self._version), 0

    def _memory(self) -> MemoryUse:
        return MemoryUse(0, 0, 0, 0)

    def _asked(self) -> tuple[int, int]:
        return self._questions_asked, 0

    def _disk_bytes(self) -> int:
        return self._maintenance.disk_bytes()

    # --- reading by key -----------------------------------------------------------------------------------

    def get(self, key: Any, *more: Any) -> Row | None:
        """The row with this key, or None."""
        return self.get_many([(key, *more) if more else key])[0]

    def get_many(self, keys: Iterable[Any]) -> list[Row | None]:
        """The rows of several keys, in their order; None where there is none."""
        spec = self.spec
        if not spec.lookup_key:
            raise self._keyless()
        fitting = [self._key(key) for key in keys]
        places = [place for place, key in enumerate(fitting) if key is not None]
        found: list[Row | None] = [None] * len(fitting)
        if not places:
            return found
        asked = pa.concat_tables([key for key in fitting if key is not None])
        rows = self._ordered(asked, self._version)
        there = rows.column(FOUND).to_pylist()
        shown = rows.column(SHOWN).to_pylist() if SHOWN in rows.schema.names else there
        make = row_class(spec.visible)
        columns = (to_python(rows.column(name)) for name in spec.visible)
        for place, here, seen, values in zip(places, there, shown, zip(*columns, strict=True), strict=True):
            found[place] = make(values) if here and seen else None
        return found

    def fetch(self, keys: pa.Table) -> pa.Table:
        """Physical rows for rows of key columns, in their order; `__found` tells which are there."""
        if not self.spec.key:
            raise self._keyless()
        return self._ordered(
            align(keys.select(list(self.spec.key)), self._key_schema, self.name), self._version
        )

    def _ordered(self, keys: pa.Table, version: DeltaVersion) -> pa.Table:
        self._questions_asked += 1
        codec = KeyCodec(version.spec.schema, version.spec.key)
        if version.state.physical is None:
            rows, numbers = version.spec.schema.empty_table(), pa.chunked_array([], pa.int64())
        else:
            frame = version.matching(self._delta.session(), version.spec.key, keys, nulls_meet=True)
            rows, numbers = version.numbered(frame)
        # Groups that are fetched are mostly written next, which needs the same rows: they are kept till then.
        self._looked_up = LookedUp(version, frozenset(codec.encode_columns(keys)), rows, numbers)
        at = {code: number for number, code in enumerate(codec.encode_columns(rows))}
        places = [at.get(code) for code in codec.encode_columns(keys)]
        taken = rows.take(pa.array(places, pa.int64()))
        return taken.append_column(FOUND, pa.array([place is not None for place in places]))

    def _key(self, key: Any) -> pa.Table | None:
        """One key, as users give it, in the types of its columns; None when no row can have it."""
        several = isinstance(key, tuple) and len(self.spec.key) > 1
        return in_types(key if several else (key,), list(self._key_schema))

    @property
    def _key_schema(self) -> pa.Schema:
        return pa.schema([self.spec.schema.field(name) for name in self.spec.key])

    # --- reading many -------------------------------------------------------------------------------------

    def column(self, column: str, where: str | None = None) -> pa.ChunkedArray:
        """One column as Arrow, of the rows for which the condition holds."""
        return self._ask(quote(self._resolve(column)), where).column(0)

    def column_values(self, column: str, where: str | None = None) -> list[Any]:
        """The values of one column, of the rows for which the condition holds."""
        return to_python(self.column(column, where))

    def scalar(self, expression: str, where: str | None = None) -> Any:
        """The one value of an expression over the rows, usually an aggregate."""
        return one_value(expression, self._ask(expression, where))

    def _ask(self, projection: str, where: str | None) -> pa.Table:
        self._questions_asked += 1
        return self._questions.ask(self._version, projection, where)

    def _batches(self, where: str | None) -> Iterator[pa.RecordBatch]:
        """Spark writes the rows to files, from which one batch at a time is read."""
        import pyarrow.dataset as ds

        version = self._version
        frame = version.frame(self._delta.session())
        if where is not None:
            condition = self._questions.bound(version.spec, "*", where).args["where"].this
            frame = frame.where(condition.sql(dialect=SPARK))
        with self._maintenance.scratch(STAGING, self._read_only) as folder:
            with translated():
                frame.write.parquet(str(folder / "streamed"))
            files = sorted((folder / "streamed").glob("*.parquet"))
            if not files:
                return
            rows = ds.dataset(files, format="parquet")
            for batch in rows.to_batches(batch_size=BATCH_ROWS, batch_readahead=1, fragment_readahead=1):
                if batch.num_rows:
                    yield from pa.Table.from_batches([batch]).cast(version.spec.visible_schema).to_batches()

    # --- changes ------------------------------------------------------------------------------------------

    def changes_between(self, after: int, upto: int, *, forgotten: bool = True) -> pa.Table:
        """The changes after version `after` up to `upto`: visible columns and `_weight`."""
        return self._changed(after, upto).drop_columns([_VERSION])

    def _changed(self, after: int, upto: int) -> pa.Table:
        frame = self.change_frame(self._delta.session(), after, upto)
        fields = [pa.field(name, pa.int64()) for name in (WEIGHT, _VERSION)]
        schema = pa.schema([*self.spec.visible_schema, *fields])
        if frame is None:
            return schema.empty_table()
        with translated():
            rows = brought(frame)
        return checked_cast(rows.sort_by([(_VERSION, "ascending"), (WEIGHT, "ascending")]), schema)

    def _changes_by_version(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        step = upto - after if self.changed_rows(after, upto) <= _MOST_CHANGES else 1
        for first in range(after, upto, step):
            rows = self._changed(first, first + step)
            parts = {}
            for version in set(rows.column(_VERSION).to_pylist()):
                said, _ = self._log.said(version)
                assert said is not None
                parts[said["number"]] = rows.filter(pc.equal(rows.column(_VERSION), version))
            for number in range(first + 1, first + step + 1):
                # Also versions in which only hidden rows changed, with no rows.
                yield number, parts.get(number, rows.slice(0, 0)).drop_columns([_VERSION])

    def change_frame(self, spark: SparkSession, after: int, upto: int) -> DataFrame | None:
        """As `changes_between`, as a frame with Delta's `_commit_version`; None when nothing changed."""
        if after >= upto:
            return None
        first, last = self._log.first_after(after), self._log.first_after(upto)
        newest = self._log.newest()
        assert newest is not None
        missing = first is None or (self._log.said(first)[0] or {}).get("number") != after + 1
        if missing or after < max(self._version.state.floor, self._maintenance.horizon):
            raise LaggingReaderError(
                f'table "{self.name}" no longer has the changes after version {after}',
                hint="read the table as it is now, and go on from its version",
            )
        assert first is not None
        feed = delta.change_feed(spark, self._path, first, newest if last is None else last - 1)
        weight = " ".join(f"WHEN '{kind}' THEN {value}" for kind, value in _WEIGHTS.items())
        shown = self._version.shown(feed)
        return shown.selectExpr(
            *map(quote, self.spec.visible),
            f"CAST(CASE _change_type {weight} END AS BIGINT) AS {WEIGHT}",
            _VERSION,
        )

    def changed_rows(self, after: int, upto: int) -> int:
        """An upper bound of the rows added and removed between two versions; infinite when unknown."""
        counts = []
        for number in (after, upto):
            later = self._log.first_after(number)
            version = self._log.newest() if later is None else later - 1
            said = self._log.said(version)[0] if version is not None and version >= 0 else None
            counts.append(int(said["changed"]) if said is not None and said["number"] == number else None)
        before, then = 0 if after == 0 else counts[0], counts[1]
        return then - before if before is not None and then is not None else 1 << 62

    def register_reader(self, reader: str, version: int) -> None:
        """Retain the changes after `version` for a named reader."""
        self._maintenance.register(reader, version)

    def release_reader(self, reader: str) -> None:
        """Stop retaining changes for a named reader."""
        self._maintenance.release(reader)


def in_types(key: tuple[Any, ...], fields: list[pa.Field]) -> pa.Table | None:
    """One key in the types of its columns; None when no row can have it."""
    if len(key) != len(fields):
        names = ", ".join(KEY if field.name == MESSAGE_KEY else field.name for field in fields)
        raise TableError(f"the key has {len(fields)} columns ({names}), {len(key)} values given")
    spec = TableSpec("key", pa.schema(fields))
    try:
        return to_table([dict(zip(spec.schema.names, key, strict=True))], spec)
    except (VelostreamError, pa.ArrowInvalid, pa.ArrowTypeError):
        return None
