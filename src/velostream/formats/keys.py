"""Message keys as one column, `key`, decoded by a format of their own.

Unlike a row, a key may be a plain value. In JSON and Avro it is read as the only field of an object: in Avro
that has the same bytes, in JSON the object is put around it. Where a format has only rows, the row becomes a
STRUCT. A record without a key has a null.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.errors import SourceConfigError
from velostream.formats.columns.dataframes import BAD_ROW, RECORD
from velostream.formats.columns.types import spark_name
from velostream.formats.decoder import Decoder, FormatSettings, decoder_for
from velostream.formats.json.records import JsonDecoder
from velostream.formats.raw import RawDecoder
from velostream.model.columns import BAD
from velostream.sql.types import literal, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

KEY = "key"
_BEFORE, _AFTER = f'{{"{KEY}":'.encode(), b"}"
_ALONE = "__alone"
_ABSENT = "__absent"
_NOT_ALONE = "the key is not one JSON value"
_VALUE = "value"


def key_decoder(form: str, settings: FormatSettings, declared: pa.DataType | None = None) -> Decoder:
    """The decoder of keys in a format; SourceConfigError when settings or the declared type do not fit."""
    if form in ("avro", "protobuf") and settings.registry_url is None:
        raise SourceConfigError(
            f'"key.format" = "{form}" needs a schema registry', hint='give "schema.registry.url"'
        )
    if form == "json":
        return JsonKeys()
    if form == "avro":
        from velostream.formats.avro.keys import AvroKeys

        return AvroKeys(settings)
    if form == "raw":
        _check(declared, "raw", "STRING or BINARY", pa.types.is_string, pa.types.is_binary)
        return RawKeys()
    if form in ("csv", "protobuf"):
        _check(declared, form, "a STRUCT", pa.types.is_struct)
        names = [field.name for field in declared] if declared is not None else None
        return RowKeys(decoder_for(form, replace(settings, names=names)))
    raise SourceConfigError(
        f'"key.format" cannot be "{form}": keys are no envelopes', hint='write "json" or "avro"'
    )


def _check(declared: pa.DataType | None, form: str, wanted: str, *kinds: object) -> None:
    if declared is not None and not any(kind(declared) for kind in kinds if callable(kind)):
        raise SourceConfigError(
            f'with "key.format" = "{form}", column "{KEY}" is {wanted}, not {spark_name(declared)}'
        )


class JsonKeys:
    """One JSON value of any kind per key."""

    rows = JsonDecoder()

    def columns(self, sample: Sequence[bytes]) -> pa.Schema | None:
        """The type inferred from the sample's values."""
        return self.rows.columns(_objects(sample))

    def frame(
        self, records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str] = (), *, careful: bool
    ) -> DataFrame:
        """See `Decoder.frame`."""
        through = [quote(name) for name in passed]
        around = f"concat(X'{_BEFORE.hex()}', {RECORD}, X'{_AFTER.hex()}')"
        # Text that would add fields to the object is invalid JSON within an array.
        items = f"json_array_length(concat('[', CAST({RECORD} AS STRING), ']'))"
        alone = f"({RECORD} IS NULL OR coalesce({items} = 1, false))"
        objects = records.selectExpr(f"{around} AS {RECORD}", f"{alone} AS {_ALONE}", *through)
        if not careful:
            refused = f"raise_error({literal(f'{BAD_ROW}: {_NOT_ALONE}')})"
            good = objects.where(f"{_ALONE} OR {refused}")
            return self.rows.frame(good, fields, passed, careful=False)
        frame = self.rows.frame(objects, fields, [*passed, _ALONE], careful=True)
        bad = f"CASE WHEN {_ALONE} THEN {BAD} ELSE {literal(_NOT_ALONE)} END AS {BAD}"
        return frame.selectExpr(*(quote(field.name) for field in fields), *through, bad)

    def reasons(self, records: Sequence[bytes], fields: Sequence[pa.Field]) -> list[str | None]:
        """See `Decoder.reasons`."""
        told = [_no_json(record) for record in records]
        typed = self.rows.reasons([_BEFORE + record + _AFTER for record in records], fields)
        return [first or second for first, second in zip(told, typed, strict=True)]

    def widen(self, records: Sequence[bytes], schema: pa.Schema) -> pa.Schema | None:
        """Wider types for values that do not fit, and new fields of objects."""
        return self.rows.widen(_objects(records), schema)


@dataclass(frozen=True)
class RowKeys:
    """One row per key, as a STRUCT."""

    rows: Decoder

    def columns(self, sample: Sequence[bytes]) -> pa.Schema | None:
        """A STRUCT of the columns of a row."""
        found = self.rows.columns(sample)
        return None if found is None else _struct(found)

    def frame(
        self, records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str] = (), *, careful: bool
    ) -> DataFrame:
        """See `Decoder.frame`."""
        through = [quote(name) for name in passed]
        marked = records.selectExpr(RECORD, f"{RECORD} IS NULL AS {_ABSENT}", *through)
        frame = self.rows.frame(marked, _members(fields), [*passed, _ABSENT], careful=careful)
        values = ", ".join(f"{literal(f.name)}, {quote(f.name)}" for f in _members(fields))
        row = f"CASE WHEN NOT {_ABSENT} THEN named_struct({values}) END AS {KEY}"
        return frame.selectExpr(row, *through, *([BAD] if careful else []))

    def reasons(self, records: Sequence[bytes], fields: Sequence[pa.Field]) -> list[str | None]:
        """See `Decoder.reasons`."""
        return self.rows.reasons(records, _members(fields))

    def widen(self, records: Sequence[bytes], schema: pa.Schema) -> pa.Schema | None:
        """Like rows."""
        wider = self.rows.widen(records, pa.schema(_members(list(schema))))
        return None if wider is None else _struct(wider)


class RawKeys:
    """The bytes of the key: as text, which must be UTF-8, or unchanged."""

    rows = RawDecoder()

    def columns(self, sample: Sequence[bytes]) -> pa.Schema | None:
        """Text, as sinks write it."""
        return pa.schema([pa.field(KEY, pa.string())])

    def frame(
        self, records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str] = (), *, careful: bool
    ) -> DataFrame:
        """See `Decoder.frame`."""
        frame = self.rows.frame(records, self._as_values(fields), passed, careful=careful)
        return frame.withColumnRenamed(_VALUE, KEY)

    def reasons(self, records: Sequence[bytes], fields: Sequence[pa.Field]) -> list[str | None]:
        """See `Decoder.reasons`."""
        return self.rows.reasons(records, self._as_values(fields))

    def widen(self, records: Sequence[bytes], schema: pa.Schema) -> pa.Schema | None:
        """Never."""
        return None

    def _as_values(self, fields: Sequence[pa.Field]) -> list[pa.Field]:
        return [field.with_name(_VALUE) for field in fields]


def _struct(row: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(KEY, pa.struct(list(row)))])


def _members(fields: Sequence[pa.Field]) -> list[pa.Field]:
    return [member for field in fields for member in field.type]


def _objects(records: Sequence[bytes]) -> list[bytes]:
    return [_BEFORE + record + _AFTER for record in records if _no_json(record) is None]


def _no_json(record: bytes) -> str | None:
    """Why a key is not one JSON value."""
    try:
        json.loads(record.decode("utf-8"))
    except UnicodeDecodeError as exc:
        return f"not valid UTF-8: {exc.reason} at byte {exc.start}"
    except RecursionError:
        return "not JSON: nested too deeply"
    except ValueError as exc:
        return f"not JSON: {exc}" if record.strip() else "empty"
    return None
