"""Debezium envelopes: change data capture of a database, as JSON or Avro.

Each record is one row. `frame` returns the columns of the row and `_deleted`: after an insert, update or
snapshot (`op` c, u, r) the current row, false; after a delete (`op` d) the former row, as far as the database
sent it, true. That is an upsert or a delete by the table's key, which is the message key: a source reads it
like any upsert topic, with `_deleted` in place of tombstones. The tombstone that Debezium sends after a
delete is a null record: a row of nulls with `_deleted` null, which changes nothing. Messages (`op` m) are
such rows, too; a truncated table (`op` t) cannot be expressed by rows and is a bad record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from velostream.formats.columns.dataframes import BAD_ROW, RECORD
from velostream.formats.columns.inference import merge_schemas
from velostream.formats.columns.python_dataframes import check_types, column_of
from velostream.formats.columns.types import spark_name
from velostream.formats.debezium.json import JsonEnvelopes, sampled_columns
from velostream.formats.schemas.origins import Schemas
from velostream.formats.schemas.wire import schema_ids
from velostream.model.columns import BAD
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from velostream.formats.avro.types import AvroSchema
    from velostream.formats.decoder import FormatSettings

DELETED = "_deleted"
_REPLACING = ("c", "u", "r")


class Envelope(NamedTuple):
    """A change: values by column before and after; None where there was or is no row."""

    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


@dataclass
class DebeziumDecoder:
    """One envelope per record: Avro with a registry or a schema file, else JSON."""

    settings: FormatSettings
    schemas: Schemas[AvroSchema] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.settings.registry_url is not None or self.settings.schema_file is not None:
            from velostream.formats.debezium.avro import EnvelopeLanguage

            self.schemas = Schemas(EnvelopeLanguage(), self.settings)

    def columns(self, sample: Sequence[bytes]) -> pa.Schema | None:
        """The columns of the rows: from the schema, else inferred from values."""
        if self.schemas is None:
            return sampled_columns(sample)
        from velostream.formats.debezium.avro import row_columns

        reader = self.schemas.reader(sample)
        return None if reader is None else row_columns(reader)

    def frame(
        self, records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str] = (), *, careful: bool
    ) -> DataFrame:
        """See `Decoder.frame`, with `_deleted`."""
        if careful and self.schemas is not None:
            self.schemas.learn_all(records)
        envelopes = self.envelopes(fields)
        check_types(fields, envelopes.types)
        kinds = {column.name: column.dataType.simpleString() for column in records.schema.fields}
        ddl = [f"{quote(f.name)} {spark_name(f.type)}" for f in fields]
        ddl += [f"{quote(name)} {kinds[name]}" for name in passed]
        ddl.append(f"{DELETED} BOOLEAN")
        ddl += [f"{BAD} STRING"] if careful else []
        given = records.selectExpr(RECORD, *(quote(name) for name in passed))
        run = _Batches(envelopes, tuple(fields), tuple(passed), careful)
        return given.mapInArrow(run, ", ".join(ddl))

    def reasons(self, records: Sequence[bytes], fields: Sequence[pa.Field]) -> list[str | None]:
        """See `Decoder.reasons`."""
        if self.schemas is not None:
            self.schemas.learn(schema_ids(list(records)))
        return _rows(records, fields, self.envelopes(fields)).bad

    def widen(self, records: Sequence[bytes], schema: pa.Schema) -> pa.Schema | None:
        """New columns of the table, and wider numeric types."""
        if self.schemas is None:
            found = sampled_columns(records)
            wide = schema if found is None else merge_schemas(schema, found)
            return None if wide == schema else wide
        from velostream.formats.debezium.avro import row_columns

        ids = schema_ids(list(records))
        self.schemas.learn(ids)
        wide = schema
        for number in sorted(ids & self.schemas.known.keys()):
            wide = merge_schemas(wide, row_columns(self.schemas.known[number]))
        return None if wide == schema else wide

    def envelopes(self, fields: Sequence[pa.Field]) -> Any:
        """What opens records as envelopes of rows with these columns."""
        if self.schemas is None:
            return JsonEnvelopes(fields)
        from velostream.formats.debezium.avro import AvroEnvelopes

        return AvroEnvelopes(fields, self.schemas)


class _Rows(NamedTuple):
    """The rows of some records: values by column, whether each is deleted, and why a record is bad."""

    columns: list[pa.Array]
    gone: list[bool | None]
    bad: list[str | None]


def _rows(records: Sequence[bytes | None], fields: Sequence[pa.Field], envelopes: Any) -> _Rows:
    opened: Callable[[bytes], Envelope] = envelopes.opened()
    rows: list[Sequence[Any]] = []
    gone: list[bool | None] = []
    bad: list[str | None] = [None] * len(records)
    nothing = (None,) * len(fields)
    for number, record in enumerate(records):
        row, is_gone = None, None
        if record is not None:
            try:
                row, is_gone = _said(opened(record))
            except (ValueError, EOFError, RecursionError, OverflowError) as exc:
                bad[number] = str(exc) or type(exc).__name__
        rows.append(nothing if row is None else [row.get(f.name) for f in fields])
        gone.append(is_gone)
    values = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in fields]
    each = zip(fields, envelopes.types, values, strict=True)
    marks: list[str | None] = [None] * len(rows)
    columns = [column_of(f, kind, column, marks) for f, kind, column in each]
    return _Rows(columns, gone, [reason or mark for reason, mark in zip(bad, marks, strict=True)])


def _said(change: Envelope) -> tuple[dict[str, Any] | None, bool | None]:
    """The row of a change, and whether it is deleted; neither where nothing changed."""
    if change.op == "m":
        return None, None
    if change.op == "t":
        raise ValueError("the table was truncated, which rows cannot express")
    if change.op == "d":
        return change.before or {}, True
    if change.op not in _REPLACING:
        raise ValueError(f'"{change.op}" is no operation')
    if change.after is None:
        raise ValueError(f'a change "{change.op}" without the row after it')
    return change.after, False


class _Batches:
    """What each task runs."""

    def __init__(
        self, envelopes: Any, fields: tuple[pa.Field, ...], passed: tuple[str, ...], careful: bool
    ) -> None:
        self.envelopes = envelopes
        self.fields = fields
        self.passed = passed
        self.careful = careful

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = _rows(batch.column(0).to_pylist(), self.fields, self.envelopes)
            first = next((reason for reason in rows.bad if reason is not None), None)
            if first is not None and not self.careful:
                raise ValueError(f"{BAD_ROW}: {first}")
            columns = [*rows.columns, *batch.columns[1:], pa.array(rows.gone, pa.bool_())]
            names = [*(f.name for f in self.fields), *self.passed, DELETED]
            if self.careful:
                columns.append(pa.array(rows.bad, pa.string()))
                names.append(BAD)
            yield pa.RecordBatch.from_arrays(columns, names=names)
