"""Segments of the spool as Arrow rows, decoded in Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from velostream.connectors.files.read.dataframes import binary_rows, record_table
from velostream.formats.columns.dataframes import RECORD
from velostream.formats.columns.inference import load_json
from velostream.formats.columns.values import json_value, text_value
from velostream.formats.json.numbers import restored
from velostream.model.columns import ENTERED, OFFSET, PARTITION, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from velostream.connectors.files.spool.segments import Segment
    from velostream.connectors.files.spool.spool import Spool
    from velostream.connectors.files.watch.layout import Dialects
    from velostream.formats.csv.text import CsvDialect

_WHERE = (PARTITION, OFFSET)
_SYSTEM = (*_WHERE, ENTERED)


class BadText(NamedTuple):
    """A record that does not fit the columns, and why."""

    record: str
    path: str
    start: int
    reason: str
    position: str | None = None


Suspect = tuple[str, str, int, str | None]
"""A record, the path of its file, its offset there, and its position, if that is known."""


class Shape(NamedTuple):
    """The shape of a record: the names of its fields, None for JSON, and the CSV dialect."""

    columns: tuple[str, ...] | None
    dialect: CsvDialect


@dataclass(frozen=True)
class RowReader:
    """Decodes records into the columns of a schema."""

    spool: Spool
    schema: pa.Schema
    dialects: Dialects

    def batches(self, changes: Iterable[tuple[Segment, int]], only_grows: bool) -> Iterator[pa.RecordBatch]:
        """Rows with system columns, and `_weight` unless the source only grows."""
        for segment, weight in changes:
            table = self._binary(segment) if segment.kind != "text" else self._text(segment)
            if not only_grows:
                table = table.append_column(WEIGHT, pa.array([weight] * table.num_rows, pa.int32()))
            yield from table.to_batches()

    def bad_records(
        self, segments: Sequence[Segment], suspects: Iterable[Suspect] | None
    ) -> Iterator[BadText]:
        """The records that do not fit the schema, with reasons: among the suspects, or among all."""
        shapes = self.shapes_by_path(segments)
        sure = suspects is not None
        every: Iterable[Suspect] = ((*each, None) for each in self.records(segments))
        for record, path, start, position in suspects if suspects is not None else every:
            reason = self.reason(record, shapes[path])
            if reason is not None or sure:
                told = reason or "the record does not fit the columns"
                yield BadText(record, path, start, told, position)

    def records(self, segments: Sequence[Segment]) -> Iterator[tuple[str, str, int]]:
        """Every record of text segments, with its path and offset."""
        for segment in segments:
            if segment.kind == "text":
                table = record_table(self.spool, segment)
                where = (table[name].to_pylist() for name in _WHERE)
                yield from zip(_texts(table, segment), *where, strict=True)

    def shapes_by_path(self, segments: Sequence[Segment]) -> dict[str, Shape]:
        """The shape of the records of each file."""
        return {piece.path: self.shape(s) for s in segments for piece in s.pieces}

    def shape(self, segment: Segment) -> Shape:
        """The shape of the records of a segment."""
        return Shape(self.named(segment.columns), self.dialects.of(segment.path))

    def named(self, columns: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Field names as in the schema: without a header line, fields are matched by position."""
        if columns is None or self.dialects.header:
            return columns
        return (*self.schema.names[: len(columns)], *columns[len(self.schema) :])

    def reason(self, record: str, shape: Shape) -> str | None:
        """Why a record does not fit; None when it does."""
        try:
            self.decode(record, shape)
        except ValueError as exc:
            return str(exc)
        return None

    def decode(self, record: str, shape: Shape) -> dict[str, Any]:
        """The values of a record by column; ValueError says why it cannot be decoded."""
        if shape.columns is None:
            return self._decode_json(record)
        return self._decode_csv(record, shape.columns, shape.dialect)

    def _decode_csv(self, record: str, columns: tuple[str, ...], dialect: CsvDialect) -> dict[str, Any]:
        values = dialect.values(record)
        if len(values) != len(columns):
            raise ValueError(f"{len(values)} fields where {len(columns)} are expected")
        by_name = {name.casefold(): text for name, text in zip(columns, values, strict=True)}
        row: dict[str, Any] = {}
        for field in self.schema:
            text = by_name.get(field.name.casefold())
            row[field.name] = None if text is None else _named(field.name, text_value, text, field.type)
        return row

    def _decode_json(self, record: str) -> dict[str, Any]:
        value = load_json(restored(record))
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 - a bad row, not a bug
        return {f.name: _named(f.name, json_value, value.get(f.name), f.type) for f in self.schema}

    def _text(self, segment: Segment) -> pa.Table:
        records = record_table(self.spool, segment)
        shape = self.shape(segment)
        rows, kept = [], []
        for number, record in enumerate(_texts(records, segment)):
            try:
                rows.append(self.decode(record, shape))
                kept.append(number)
            except ValueError:
                continue
        arrays = [pa.array([row[f.name] for row in rows], f.type) for f in self.schema]
        system = records.select(list(_SYSTEM)).take(pa.array(kept, pa.int64()))
        return pa.table([*arrays, *system.columns], names=[*self.schema.names, *_SYSTEM])

    def _binary(self, segment: Segment) -> pa.Table:
        found = binary_rows(self.spool, segment)
        arrays = [
            found[f.name].cast(f.type) if f.name in found.column_names else pa.nulls(found.num_rows, f.type)
            for f in self.schema
        ]
        path = pa.array([segment.pieces[0].path] * found.num_rows, pa.string())
        offsets = pa.array(range(found.num_rows), pa.int64())
        at = pa.array([segment.at_micros] * found.num_rows, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        return pa.table([*arrays, path, offsets, at], names=[*self.schema.names, *_SYSTEM])


def _texts(records: pa.Table, segment: Segment) -> list[str]:
    size = len(segment.separator)
    return [text[:-size] for text in records[RECORD].to_pylist()]


def _named(name: str, parse: Any, value: Any, kind: pa.DataType) -> Any:
    try:
        return parse(value, kind)
    except ValueError as exc:
        raise ValueError(f'column "{name}": {exc}') from exc
