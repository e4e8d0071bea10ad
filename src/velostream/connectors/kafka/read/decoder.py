"""Decodes keys and values of records to columns, each by its own format."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from velostream.connectors.realtime import READ_BY_SPARK
from velostream.errors import SourceConfigError
from velostream.formats.columns.dataframes import RECORD
from velostream.formats.debezium.envelopes import DELETED
from velostream.formats.decoder import FormatSettings, decoder_for
from velostream.formats.keys import KEY, JsonKeys, key_decoder
from velostream.formats.raw import text_or_bytes
from velostream.model.columns import BAD, TOMBSTONE
from velostream.sql.types import literal, quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from velostream.connectors.kafka.options import KafkaOptions

NO_VALUE = "the record has no value"
_RAW_COLUMNS = ("key", "timestamp", "partition", "offset")
_VALUE = "__value"
_DECODED = "__decoded_key"
_BAD_KEY = "__bad_key"


class Message(NamedTuple):
    """One record, undecoded."""

    key: bytes | None
    value: bytes | None


class MessageDecoder:
    """Decodes the records of one source.

    Values give columns by name; where `key.format` says how keys are encoded, the column `key` holds them. A
    key that cannot be decoded makes its record bad.
    """

    def __init__(self, options: KafkaOptions, declared: pa.Schema | None) -> None:
        self.format = options.format
        self.by_spark = {options.format, options.key_format or options.format} <= set(READ_BY_SPARK)
        """Whether the SQL that decodes depends on the columns alone."""
        self._keys = None
        names = declared.names if declared is not None else None
        if options.key_format is not None:
            field = _key_field(list(declared)) if declared is not None else None
            if declared is not None and field is None:
                raise SourceConfigError(
                    f'"key.format" is set, but no column "{KEY}" is declared to hold the key',
                    hint=f"declare it: {KEY} STRUCT<id: BIGINT>, or {KEY} STRING; "
                    'of a sink, say "sink.key.format"',
                )
            settings = FormatSettings(
                registry_url=options.schema_registry_url, subject=f"{options.topic}-key"
            )
            self._keys = key_decoder(options.key_format, settings, field.type if field is not None else None)
            names = [name for name in names if name.casefold() != KEY] if names is not None else None
        self._values = decoder_for(
            options.format,
            FormatSettings(
                options.schema_file, options.schema_registry_url, f"{options.topic}-value", names=names
            ),
        )

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns of Spark's reader, besides the value, that decoding needs."""
        if self.format == "raw":
            return _RAW_COLUMNS
        return (KEY,) if self._keys is not None else ()

    def columns(self, sample: Sequence[Message]) -> pa.Schema | None:
        """The columns of such records; None when they cannot be inferred."""
        found = self._values.columns([message.value for message in sample if message.value is not None])
        if self._keys is None or found is None:
            return found if self.format != "raw" else _with_key(found, sample)
        keys = self._keys.columns([message.key for message in sample if message.key is not None])
        if keys is None:
            return None
        if self.format != "raw" and _key_field(list(found)) is not None:
            raise SourceConfigError(
                f'values have a field "{KEY}", and "key.format" gives that name to the message key',
                hint=f'declare the columns, where "{KEY}" is the message key, or leave out "key.format": '
                "_key is the key as text",
            )
        return pa.schema([*keys, *(field for field in found if field.name.casefold() != KEY)])

    def frame(
        self, records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str], *, careful: bool
    ) -> DataFrame:
        """See `Decoder.frame`; the records have the columns `carried` as well."""
        field = _key_field(fields) if self._keys is not None else None
        if field is None or self._keys is None:
            return self._decoded(records, fields, passed, careful=careful)
        others = [name for name in records.columns if name not in (RECORD, KEY)]
        keys = records.selectExpr(f"{KEY} AS {RECORD}", f"{RECORD} AS {_VALUE}", *map(quote, others))
        keys = self._keys.frame(keys, [field.with_name(KEY)], [_VALUE, *others], careful=careful)
        marks = [f"{BAD} AS {_BAD_KEY}"] if careful else []
        values = keys.selectExpr(f"{_VALUE} AS {RECORD}", f"{KEY} AS {_DECODED}", *marks, *map(quote, others))
        further = [*passed, _DECODED, *([_BAD_KEY] if careful else [])]
        rest = [one for one in fields if one is not field]
        frame = self._decoded(values, rest, further, careful=careful)
        shown = [quote(name) for name in frame.columns if name not in (BAD, _BAD_KEY, _DECODED)]
        bad = [f"coalesce({_BAD_KEY}, {BAD}) AS {BAD}"] if careful else []
        return frame.selectExpr(f"{_DECODED} AS {quote(field.name)}", *shown, *bad)

    def _decoded(
        self, records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str], *, careful: bool
    ) -> DataFrame:
        """The decoded columns of values."""
        if self.format == "raw":
            # The format `raw` reads columns of the Kafka record, under the names of system columns.
            there = [f"{name} AS _{name}" for name in _RAW_COLUMNS if name in records.columns]
            ours = [f"{quote(name)} AS {quote(f'_passed{name}')}" for name in passed]
            records = records.selectExpr(RECORD, *there, *ours)
            frame = self._values.frame(records, fields, [f"_passed{n}" for n in passed], careful=careful)
            return frame.withColumnsRenamed({f"_passed{name}": name for name in passed})
        frame = self._values.frame(records, fields, passed, careful=careful)
        if self.format != "debezium":
            return frame
        # A Debezium envelope says itself that a row is deleted; the tombstone that follows it adds nothing.
        told = frame.where(f"{DELETED} IS NOT NULL" + (f" OR {BAD} IS NOT NULL" if careful else ""))
        others = [quote(name) for name in frame.columns if name not in (DELETED, TOMBSTONE)]
        return told.selectExpr(*others, *([f"{DELETED} AS {TOMBSTONE}"] if TOMBSTONE in passed else []))

    def reasons(self, messages: Sequence[Message], fields: Sequence[pa.Field]) -> list[str | None]:
        """Why each record cannot be decoded; None where its key and its value, if any, can."""
        field = _key_field(fields) if self._keys is not None or self.format == "raw" else None
        rest = [one for one in fields if one is not field]
        told = self._values.reasons([message.value or b"" for message in messages], rest)
        told = [None if m.value is None else why for m, why in zip(messages, told, strict=True)]
        if field is None:
            return told
        given = [message.key or b"" for message in messages]
        if self._keys is not None:
            keys = self._keys.reasons(given, [field.with_name(KEY)])
        else:
            keys = self._values.reasons(given, [field.with_name("value")])
        return [
            f"the key: {bad}" if bad is not None and message.key is not None else why
            for message, bad, why in zip(messages, keys, told, strict=True)
        ]

    def new_fields(self, schema: pa.Schema) -> str:
        """An SQL condition: a JSON record has a field, in its value or key, that the schema lacks."""
        key = _key_field(list(schema)) if self._keys is not None else None
        found = list(_other_fields(RECORD, [field for field in schema if field is not key]))
        if key is not None and isinstance(self._keys, JsonKeys) and pa.types.is_struct(key.type):
            found += _other_fields(KEY, list(key.type))
        # A record that is no JSON object has no fields.
        return " OR ".join(f"coalesce({each}, false)" for each in found)

    def widen(self, messages: Sequence[Message], schema: pa.Schema) -> pa.Schema | None:
        """A schema that can hold these records, new columns at its end; None when nothing has to change."""
        field = _key_field(list(schema)) if self._keys is not None else None
        rest = pa.schema([one for one in schema if one is not field])
        values = self._values.widen([m.value for m in messages if m.value is not None], rest) or rest
        if field is None or self._keys is None:
            return None if values.equals(schema) else values
        known = pa.schema([field.with_name(KEY)])
        keys = self._keys.widen([m.key for m in messages if m.key is not None], known) or known
        place = schema.get_field_index(field.name)
        found = [one for one in values if one.name.casefold() != KEY]
        wider = pa.schema([*found[:place], keys.field(0).with_name(field.name), *found[place:]])
        return None if wider.equals(schema) else wider


def _with_key(found: pa.Schema, sample: Sequence[Message]) -> pa.Schema:
    """The columns of the format `raw`, the key as text where the sample's keys are."""
    kind = text_or_bytes(message.key for message in sample if message.key is not None)
    return pa.schema([one.with_type(kind) if one.name == KEY else one for one in found])


def _key_field(fields: Sequence[pa.Field]) -> pa.Field | None:
    return next((field for field in fields if field.name.casefold() == KEY), None)


def _other_fields(record: str, fields: Sequence[pa.Field], path: str = "$") -> Iterator[str]:
    """Conditions: the object at a path of a JSON record, or one within it, has a field not among these."""
    text = f"CAST({record} AS STRING)"
    at = text if path == "$" else f"get_json_object({text}, {literal(path)})"
    known = ", ".join(literal(field.name.lower()) for field in fields)
    yield f"size(array_except(transform(json_object_keys({at}), k -> lower(k)), array({known}))) > 0"
    for field in fields:
        # Spark's JSON paths cannot express a name with an apostrophe.
        if pa.types.is_struct(field.type) and "'" not in field.name:
            yield from _other_fields(record, list(field.type), f"{path}['{field.name}']")
