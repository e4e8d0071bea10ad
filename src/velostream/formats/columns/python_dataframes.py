"""Decoding of records in Python, on Arrow batches, where Spark has no exact parser.

Everything needed is sent with the task by value: executors read no file and ask no registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from velostream.errors import SourceConfigError
from velostream.formats.columns.dataframes import BAD_ROW, RECORD
from velostream.formats.columns.types import spark_name
from velostream.model.columns import BAD
from velostream.sql.types import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = Sequence[Any]
"""The values of a record, in the order of the fields."""


_UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)


class RowDecoder(Protocol):
    """A picklable decoder; decodes records once it is opened on the executor."""

    types: Sequence[pa.DataType]
    """The types of the values that it returns, per field."""

    def opened(self) -> Callable[[bytes], Row]:
        """A function that decodes one record; ValueError says why it cannot."""


def decode_in_python(
    records: DataFrame,
    fields: Sequence[pa.Field],
    passed: Sequence[str],
    decoder: RowDecoder,
    *,
    careful: bool,
) -> DataFrame:
    """See `decoding.Decoder.frame`."""
    check_types(fields, decoder.types)
    kinds = {column.name: column.dataType.simpleString() for column in records.schema.fields}
    ddl = [f"{quote(f.name)} {spark_name(f.type)}" for f in fields]
    ddl += [f"{quote(name)} {kinds[name]}" for name in passed]
    ddl += [f"{BAD} STRING"] if careful else []
    given = records.selectExpr(RECORD, *(quote(name) for name in passed))
    run = _Batches(decoder, tuple(fields), tuple(passed), careful)
    return given.mapInArrow(run, ", ".join(ddl))


class _Batches:
    """What each task runs."""

    def __init__(
        self, decoder: RowDecoder, fields: tuple[pa.Field, ...], passed: tuple[str, ...], careful: bool
    ) -> None:
        self.decoder = decoder
        self.fields = fields
        self.passed = passed
        self.careful = careful

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decode = self.decoder.opened()
        whole = getattr(self.decoder, "batches", _none)()
        for batch in batches:
            columns, bad = self._decoded(batch.column(0), decode, whole)
            if not self.careful:
                first = next((reason for reason in bad if reason is not None), None)
                if first is not None:
                    raise ValueError(f"{BAD_ROW}: {first}")
            columns += [batch.column(number + 1) for number in range(len(self.passed))]
            names = [*(f.name for f in self.fields), *self.passed]
            if self.careful:
                columns.append(pa.array(bad, pa.string()))
                names.append(BAD)
            if not columns:
                # A batch without columns has no rows; Spark asks for none only when it counts.
                yield pa.RecordBatch.from_struct_array(pa.array([{}] * len(batch), pa.struct([])))
                continue
            yield pa.RecordBatch.from_arrays(columns, names=names)

    def _decoded(
        self, records: pa.Array, decode: Callable[[bytes], Row], whole: Callable[[pa.Array], Any] | None
    ) -> tuple[list[pa.Array], list[str | None]]:
        """All records at once if the decoder can, else one by one."""
        found = whole(records) if whole is not None else None
        if found is not None:
            try:
                return [c.cast(f.type) for c, f in zip(found, self.fields, strict=True)], [None] * len(
                    records
                )
            except pa.ArrowException:
                pass
        return decoded(records.to_pylist(), self.fields, self.decoder.types, decode)


def _none() -> None:
    return None


def decoded(
    records: Sequence[bytes | None],
    fields: Sequence[pa.Field],
    types: Sequence[pa.DataType],
    decode: Callable[[bytes], Row],
) -> tuple[list[pa.Array], list[str | None]]:
    """A column per field, null where a record is null or bad; and why each record is bad."""
    nothing: Row = (None,) * len(fields)
    rows: list[Row] = []
    bad: list[str | None] = [None] * len(records)
    for number, record in enumerate(records):
        if record is None:
            rows.append(nothing)
            continue
        try:
            rows.append(decode(record))
        except (ValueError, EOFError, RecursionError, OverflowError) as exc:
            rows.append(nothing)
            bad[number] = str(exc) or type(exc).__name__
    values = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in fields]
    each = zip(fields, types, values, strict=True)
    return [column_of(field, kind, column, bad) for field, kind, column in each], bad


def column_of(field: pa.Field, kind: pa.DataType, values: list[Any], bad: list[str | None]) -> pa.Array:
    """A column of values of a type; marks the rows whose value does not fit the column."""
    try:
        return _array(values, kind, field.type)
    except _UNFIT:
        pass
    kept = []
    for number, value in enumerate(values):
        try:
            _array([value], kind, field.type)
            kept.append(value)
        except _UNFIT as exc:
            kept.append(None)
            bad[number] = bad[number] or f'column "{field.name}": not a {spark_name(field.type)}: {exc}'
    return _array(kept, kind, field.type)


def _array(values: list[Any], kind: pa.DataType, wanted: pa.DataType) -> pa.Array:
    found = pa.array(values, kind)
    return found if kind == wanted else found.cast(wanted)


def check_types(fields: Sequence[pa.Field], types: Sequence[pa.DataType]) -> None:
    """Raise SourceConfigError when a column cannot be converted from the records' schema."""
    for field, kind in zip(fields, types, strict=True):
        if not _convertible(kind, field.type):
            raise SourceConfigError(
                f'column "{field.name}" is {spark_name(kind)} in the schema of the records, '
                f"and cannot be read as {spark_name(field.type)}"
            )


def _convertible(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast keeps the meaning; whether it keeps each value is checked row by row."""
    whole, real = pa.types.is_integer, pa.types.is_floating
    return bool(
        kind == wanted
        or (whole(kind) and (whole(wanted) or pa.types.is_decimal(wanted)))
        or (pa.types.is_decimal(kind) and (pa.types.is_decimal(wanted) or whole(wanted)))
        or (real(kind) and real(wanted))
        or (pa.types.is_date(kind) and pa.types.is_timestamp(wanted))
        or (pa.types.is_string(kind) and pa.types.is_binary(wanted))
    )


def reasons_of(records: Sequence[bytes], fields: Sequence[pa.Field], decoder: RowDecoder) -> list[str | None]:
    """See `decoding.Decoder.reasons`."""
    return decoded(records, fields, decoder.types, decoder.opened())[1]
