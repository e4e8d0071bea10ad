"""Avro records: with the header of a schema registry, or all of one schema from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.formats.avro.columns import Doubt, column_reader, one_schema, record_places
from velostream.formats.avro.single_records import UnreadableError, record_reader
from velostream.formats.avro.types import AvroSchema, arrow_columns, kind_of, parse_avro
from velostream.formats.schemas.decoder import SchemaDecoder
from velostream.formats.schemas.wire import HEADER, unframed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from velostream.formats.decoder import FormatSettings
    from velostream.formats.schemas.registry_client import Registered, Registry


class AvroLanguage:
    """Avro schemas from files and from a schema registry."""

    kind = "AVRO"

    def from_file(self, path: Path) -> AvroSchema:
        """A file with the schema as JSON."""
        return _record(parse_avro(path.read_text(encoding="utf-8")))

    def from_registry(self, registry: Registry, found: Registered) -> AvroSchema:
        """The record schema, with all schemas that it references."""
        return _record(self.parsed(registry, found))

    def parsed(self, registry: Registry, found: Registered) -> AvroSchema:
        """The schema, of any type."""
        used = registry.referenced(found)
        return parse_avro(found.text, [one.text for one in used.values()])


def _record(schema: AvroSchema) -> AvroSchema:
    arrow_columns(schema)
    return schema


class AvroDecoder(SchemaDecoder[AvroSchema]):
    """One Avro record per record."""

    def __init__(self, settings: FormatSettings) -> None:
        super().__init__(AvroLanguage(), settings)

    def columns_of(self, schema: AvroSchema) -> pa.Schema:
        """The columns of the record's fields."""
        return arrow_columns(schema)

    def rows(
        self, fields: Sequence[pa.Field], reader: AvroSchema, writers: Mapping[int, AvroSchema] | None
    ) -> AvroRows:
        """See `SchemaDecoder`."""
        return AvroRows(fields, reader, writers)


class AvroRows:
    """Decodes records into some columns; serialised to executors, with all schemas."""

    def __init__(
        self, fields: Sequence[pa.Field], reader: AvroSchema, writers: Mapping[int, AvroSchema] | None
    ) -> None:
        self.reader = _with_fields_of(reader, list((writers or {}).values()))
        self.writers = writers
        """Writer schemas by id; None when records have no header and are all of the reader's schema."""
        natural = arrow_columns(self.reader)
        there = set(natural.names)
        self.places = [f.name if f.name in there else None for f in fields]
        self.types: Sequence[pa.DataType] = [
            natural.field(f.name).type if f.name in there else f.type for f in fields
        ]

    def opened(self) -> Callable[[bytes], Sequence[Any]]:
        """See `python_frames.RowDecoder`."""
        if self.writers is None:
            return self._reading(self.reader)
        writers, made = self.writers, dict[int, Any]()

        def decode(record: bytes) -> Sequence[Any]:
            number, payload = unframed(record)
            read = made.get(number)
            if read is None:
                if number not in writers:
                    raise ValueError(f"schema id {number} is not known to the registry as an Avro record")
                try:
                    read = self._reading(writers[number])
                except UnreadableError as exc:
                    raise ValueError(f"schema id {number}: {exc}") from exc
                made[number] = read
            found: Sequence[Any] = read(payload)
            return found

        return decode

    def batches(self) -> Callable[[pa.Array], list[pa.Array] | None]:
        """A function that decodes a batch column by column, or returns None where it cannot."""
        made: dict[int, Any] = {}

        def read(records: pa.Array) -> list[pa.Array] | None:
            if None in self.places or records.null_count or not len(records):
                return None
            places = record_places(records, HEADER if self.writers is not None else 0)
            if places is None:
                return None
            number = 0
            if self.writers is not None:
                number = one_schema(places)
                if number not in self.writers:
                    return None
            if number not in made:
                writer = self.reader if self.writers is None else self.writers[number]
                made[number] = column_reader(writer, self.reader, [name for name in self.places if name])
            try:
                return None if made[number] is None else made[number](places)
            except (Doubt, pa.ArrowException):
                return None

        return read

    def _reading(self, writer: AvroSchema) -> Callable[[bytes], Sequence[Any]]:
        read = record_reader(writer, self.reader, [name for name in self.places if name is not None])
        if None not in self.places:
            return read
        names = [name for name in self.places if name is not None]
        order = [names.index(name) if name is not None else len(names) for name in self.places]

        def spread(record: bytes) -> Sequence[Any]:
            values = [*read(record), None]
            return [values[place] for place in order]

        return spread


def _with_fields_of(reader: AvroSchema, writers: Sequence[AvroSchema]) -> AvroSchema:
    """The reader's schema with fields that only writers have at its end: columns that the newest dropped."""
    top = kind_of(reader.top, reader).schema
    fields = list(top["fields"])
    taken = {f["name"] for f in fields} | {alias for f in fields for alias in f.get("aliases", ())}
    named = dict(reader.named)
    for writer in writers:
        for one in kind_of(writer.top, writer).schema["fields"]:
            if one["name"] not in taken:
                fields.append(one)
                taken.add(one["name"])
                named = {**writer.named, **named}
    if len(fields) == len(top["fields"]):
        return reader
    return AvroSchema({**top, "fields": fields}, named)
