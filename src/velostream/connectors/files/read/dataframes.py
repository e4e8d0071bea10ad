"""Segments of the spool as Spark DataFrames.

There are two ways to the same rows: Spark reads the segment files itself where executors share the driver's
disk; otherwise the records are shipped as Arrow, together with the system columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from velostream.connectors.files.spool.instants import instants_of
from velostream.formats.columns.dataframes import (
    BAD_ROW,
    RECORD,
    all_looked_at,
    decode_csv,
    decode_json,
    decode_plain_csv,
    read_json,
)
from velostream.formats.columns.types import spark_name
from velostream.formats.compression import begins_with_mark
from velostream.model.columns import BAD, ENTERED, OFFSET, PARTITION, POSITION, SYSTEM_TYPES, WEIGHT
from velostream.spark.dataframes import filled
from velostream.sql.types import literal, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from velostream.connectors.files.spool.segments import Segment
    from velostream.connectors.files.spool.spool import Spool
    from velostream.connectors.files.watch.layout import Dialects

SYSTEM = (ENTERED, PARTITION, OFFSET, POSITION)
"""The system columns of files."""
_NATIVE_POSITION = (
    "concat({segment}, lpad(CAST(_metadata.file_block_start AS STRING), 12, '0'), "
    "lpad(CAST(monotonically_increasing_id() AS STRING), 20, '0'))"
)
"""Orders rows within one frame: ids within a block increase in the order of reading.

They depend on what else is read, so they do not identify a row across frames.
"""
_POSITION = (
    "concat(lpad(CAST(unix_micros(_timestamp) AS STRING), 17, '0'), ' ', _partition, ' ', "
    "lpad(CAST(_offset AS STRING), 20, '0'))"
)
"""When a record was read, from which file, at which byte: immutable, unique and increasing."""
_MOST_LITERALS = 1000
_UNFIT = "a value does not fit its column"


@dataclass(frozen=True)
class FrameReader:
    """Builds frames over one spool."""

    spark: SparkSession
    spool: Spool
    dialects: Dialects
    names: Sequence[str]
    """Columns of the source in order, for CSV files without a header."""
    only: frozenset[tuple[str, int]] | None = None
    """The path and offset of records to which careful frames with positions are limited."""

    def rows(
        self,
        changes: Iterable[tuple[Segment, int]],
        fields: Sequence[pa.Field],
        system: Sequence[str] = (),
        *,
        careful: bool = True,
    ) -> DataFrame:
        """The rows of weighted segments: `fields`, `system` columns, and `_weight` if any is retracted.

        `careful` frames have `_bad`; the others fail at the first bad record.
        """
        changes = list(changes)
        position = None
        if not careful and POSITION in system:
            position = self._native_position([segment for segment, _ in changes], system)
        groups: dict[tuple[Any, ...], list[Segment]] = {}
        for segment, weight in changes:
            dialect = self.dialects.of(segment.path)
            key = (weight, segment.kind, segment.columns, segment.separator, segment.plain, dialect)
            groups.setdefault(key, []).append(segment)
        weighted = any(key[0] < 0 for key in groups)
        parts = []
        for (weight, *_), segments in groups.items():
            # A bad row was never added, so it must not be retracted
            # either: a range with retractions is always read carefully.
            part = self._group(segments, fields, system, careful or weight < 0, position)
            if weight < 0:
                part = part.where(f"{BAD} IS NULL")
                part = part if careful else part.drop(BAD)
            if weighted:
                part = part.selectExpr("*", f"{weight} AS {WEIGHT}")
            parts.append(part)
        if not parts:
            return self._nothing(fields, system, careful)
        return reduce(lambda one, other: one.unionByName(other), parts)

    def bad_records(self, segments: Iterable[Segment], fields: Sequence[pa.Field]) -> pa.Table:
        """The text records that do not fit `fields`: `_bad` (the record) and where they are."""
        where = (PARTITION, OFFSET, POSITION)
        texts = [(segment, 1) for segment in segments if segment.kind == "text"]
        return self.rows(texts, fields, where).where(f"{BAD} IS NOT NULL").select(BAD, *where).toArrow()

    def local(self) -> bool:
        """Whether executors can read the driver's files."""
        master = self.spark.sparkContext.master or ""
        shared = self.spark.conf.get("spark.velostream.sharedDataDir", "false")
        return shared == "true" or (master.startswith("local") and not master.startswith("local-cluster"))

    def _group(
        self,
        segments: Sequence[Segment],
        fields: Sequence[pa.Field],
        system: Sequence[str],
        careful: bool,
        position: str | None,
    ) -> DataFrame:
        first = segments[0]
        if first.kind != "text":
            return self._binary(segments, fields, system, careful)
        known = self._native_system(segments, system, position)
        if first.columns is None and first.plain and known is not None and not careful:
            frame = read_json(self._reader(segments), self._paths(segments), fields, known)
            if frame is not None:
                return frame
        records = self._records(segments, system, known)
        if first.columns is None:
            return decode_json(records, fields, system, careful=careful)
        columns, dialect = first.columns, self.dialects.of(first.path)
        if not dialect.header:
            columns = (*self.names[: len(columns)], *columns[len(self.names) :])
        if first.plain and not careful:
            frame = decode_plain_csv(records, columns, fields, dialect, system)
            if frame is not None:
                return frame
        return decode_csv(records, columns, fields, dialect, system, careful=careful)

    def _native_position(self, segments: Sequence[Segment], system: Sequence[str]) -> str | None:
        """SQL that orders the rows of segments within one frame, oldest first; None if Spark cannot.

        All rows of a frame are ordered in one way, so other system columns must not need another.
        """
        names = [segment.name for segment in segments]
        if len(system) > 1 or any(segment.kind != "text" for segment in segments) or self._marked(segments):
            return None
        if names == sorted(names):
            return _NATIVE_POSITION.format(segment="_metadata.file_name")
        if len(names) > _MOST_LITERALS:
            return None
        ranks = {name: literal(f"{rank:04d}") for rank, name in enumerate(names)}
        return _NATIVE_POSITION.format(segment=_lookup(ranks))

    def _native_system(
        self, segments: Sequence[Segment], system: Sequence[str], position: str | None
    ) -> dict[str, str] | None:
        """SQL for the system columns of rows that Spark itself reads; None when it cannot."""
        known = {} if position is None else {POSITION: position}
        if len(segments) <= _MOST_LITERALS:
            if not any(segment.timed for segment in segments):
                instants = {segment.name: str(segment.at_micros) for segment in segments}
                known[ENTERED] = f"timestamp_micros({_lookup(instants)})"
            paths = {
                s.name: literal(s.pieces[0].path) for s in segments if len({p.path for p in s.pieces}) == 1
            }
            if len(paths) == len(segments):
                known[PARTITION] = _lookup(paths)
        if not self.local() or not known.keys() >= set(system) or self._marked(segments):
            return None
        return {name: known[name] for name in system}

    def _marked(self, segments: Sequence[Segment]) -> bool:
        """Whether a segment begins with a byte order mark: part of a record, which Spark would drop."""
        return any(begins_with_mark(self.spool.path(segment)) for segment in segments)

    def _records(
        self, segments: Sequence[Segment], system: Sequence[str], known: dict[str, str] | None
    ) -> DataFrame:
        """The records of segments with system columns; Spark reads them itself if these are `known`."""
        if known is None:
            table = pa.concat_tables(
                [chosen(record_table(self.spool, segment), self.only) for segment in segments]
            )
            return self.spark.createDataFrame(filled(table)).selectExpr(
                f"left({RECORD}, length({RECORD}) - {len(segments[0].separator)}) AS {RECORD}",
                *(f"{_POSITION} AS _position" if name == POSITION else name for name in system),
            )
        frame = self._reader(segments).schema("value STRING").text(self._paths(segments))
        return frame.selectExpr(f"value AS {RECORD}", *(f"{sql} AS {name}" for name, sql in known.items()))

    def _reader(self, segments: Sequence[Segment]) -> DataFrameReader:
        # These files are ours: their names contain neither patterns nor partition columns.
        reader = self.spark.read.option("__globPaths__", "false").option("recursiveFileLookup", "true")
        return reader.option("lineSep", segments[0].separator.decode("ascii"))

    def _paths(self, segments: Sequence[Segment]) -> list[str]:
        return [f"file://{self.spool.path(segment)}" for segment in segments]

    def _binary(
        self, segments: Sequence[Segment], fields: Sequence[pa.Field], system: Sequence[str], careful: bool
    ) -> DataFrame:
        columns = segments[0].columns or ()
        if system or not self.local():
            tables = [chosen(_binary_table(self.spool, segment), self.only) for segment in segments]
            frame = self.spark.createDataFrame(filled(pa.concat_tables(tables)))
            system = [f"{_POSITION} AS _position" if name == POSITION else name for name in system]
        else:
            frame = self._reader(segments).format(segments[0].kind).load(self._paths(segments))
        there = {name.partition(":")[0].casefold() for name in columns}
        values, doubts, converted = [], [], []
        for field in fields:
            name, wanted = quote(field.name), spark_name(field.type)
            if field.name.casefold() not in there:
                values.append(f"CAST(NULL AS {wanted}) AS {name}")
                continue
            if f"{field.name}:{field.type}" in columns:
                values.append(name)
                continue
            # A cast that loses digits does not compare equal to its input.
            value = f"try_cast({name} AS {wanted})"
            doubt = f"({name} IS NOT NULL AND NOT ({value} <=> {name}))"
            doubts.append(doubt)
            converted.append(field.name)
            refused = f"raise_error({literal(f'{BAD_ROW}: a value of column {field.name} does not fit')})"
            value = value if careful else f"CASE WHEN {doubt} THEN {refused} ELSE {value} END"
            values.append(f"{value} AS {name}")
        if careful:
            found = f"CASE WHEN {' OR '.join(doubts)} THEN {literal(_UNFIT)} END" if doubts else "NULL"
            values.append(f"CAST({found} AS STRING) AS {BAD}")
        rows = frame.selectExpr(*values, *system)
        # Columns without conversion cannot be bad, so Parquet need not read them for this check.
        return rows if careful else all_looked_at(rows, converted)

    def _nothing(self, fields: Sequence[pa.Field], system: Sequence[str], careful: bool) -> DataFrame:
        ddl = [f"{quote(f.name)} {spark_name(f.type)}" for f in fields]
        ddl += [f"{name} {SYSTEM_TYPES[name]}" for name in system]
        ddl += [f"{BAD} STRING"] if careful else []
        return self.spark.createDataFrame([], ", ".join(ddl))


def place(position: str) -> tuple[str, int]:
    """The path and the offset of a record, from its position."""
    return position[18:-21], int(position[-20:])


def chosen(records: pa.Table, only: frozenset[tuple[str, int]] | None) -> pa.Table:
    """The records of a table at these places; None: all."""
    if only is None:
        return records
    there = zip(records[PARTITION].to_pylist(), records[OFFSET].to_pylist(), strict=True)
    return records.filter(pa.array([each in only for each in there], pa.bool_()))


def record_table(spool: Spool, segment: Segment) -> pa.Table:
    """The records of a text segment, separators included, with the place and time of reading each."""
    data = np.fromfile(spool.path(segment), dtype=np.uint8)
    ends = _ends(data, segment.separator)
    bounds = np.concatenate([np.zeros(1, dtype=np.int64), ends])
    buffers = [None, pa.py_buffer(bounds.astype(np.int64)), pa.py_buffer(data)]
    counts = [piece.rows for piece in segment.pieces]
    paths = pa.array([piece.path for piece in segment.pieces], pa.string())
    return pa.table(
        {
            RECORD: pa.Array.from_buffers(pa.large_string(), len(ends), buffers),
            PARTITION: paths.take(pa.array(np.repeat(np.arange(len(counts)), counts))),
            OFFSET: pa.array(_offsets(spool, segment, bounds), pa.int64()),
            ENTERED: _instants(spool, segment),
        }
    )


def _ends(data: NDArray[np.uint8], separator: bytes) -> NDArray[np.int64]:
    """The end of each record, its separator included."""
    found = np.flatnonzero(data == separator[-1]).astype(np.int64)
    for back, byte in enumerate(reversed(separator[:-1]), start=1):
        found = found[found >= back]
        found = found[data[found - back] == byte]
    return found + 1


def _offsets(spool: Spool, segment: Segment, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """The offset in its file at which each record begins."""
    if segment.indexed:
        return np.fromfile(spool.index_path(segment), dtype="<i8")
    parts, row = [], 0
    for piece in segment.pieces:
        begins = bounds[row : row + piece.rows]
        extra = np.arange(piece.rows) * (piece.line_end - len(segment.separator))
        parts.append(piece.start + begins - begins[:1] + extra)
        row += piece.rows
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _binary_table(spool: Spool, segment: Segment) -> pa.Table:
    table = binary_rows(spool, segment)
    rows = table.num_rows
    table = table.append_column(PARTITION, pa.array([segment.pieces[0].path] * rows, pa.string()))
    table = table.append_column(OFFSET, pa.array(np.arange(rows), pa.int64()))
    return table.append_column(ENTERED, _instants(spool, segment))


def binary_rows(spool: Spool, segment: Segment) -> pa.Table:
    """The rows of a binary segment."""
    if segment.kind == "orc":
        from pyarrow import orc

        return orc.read_table(spool.path(segment))
    return pq.read_table(spool.path(segment), partitioning=None)


def _instants(spool: Spool, segment: Segment) -> pa.Array:
    return pa.array(instants_of(spool, segment), pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def _lookup(values: dict[str, str]) -> str:
    """SQL that maps each row to an attribute of its segment."""
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    pairs = ", ".join(f"{literal(name)}, {value}" for name, value in values.items())
    return f"element_at(map({pairs}), _metadata.file_name)"
