"""Protobuf records: with the header of a schema registry, or all of one message from a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from velostream.formats.protobuf.files import ProtoSchema, compiled, compiled_file, message_class, protobuf
from velostream.formats.protobuf.types import field_reader, message_columns
from velostream.formats.schemas.decoder import SchemaDecoder
from velostream.formats.schemas.wire import unframed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from velostream.formats.decoder import FormatSettings
    from velostream.formats.schemas.registry_client import Registered, Registry

_DEEPEST_MESSAGE = 100
_LONGEST_VARINT = 35


@dataclass(frozen=True)
class ProtoLanguage:
    """Protobuf as a schema language of registries."""

    message: str | None
    kind = "PROTOBUF"

    def from_file(self, path: Path) -> ProtoSchema:
        """A .proto file, or a descriptor set."""
        return _with_columns(compiled_file(path, self.message))

    def from_registry(self, registry: Registry, found: Registered) -> ProtoSchema:
        """With all files that it imports."""
        used = {name: one.text for name, one in registry.referenced(found).items()}
        return _with_columns(compiled(f"schema_{found.id}.proto", found.text, used, self.message))


def _with_columns(schema: ProtoSchema) -> ProtoSchema:
    columns_of(schema)
    return schema


def columns_of(schema: ProtoSchema) -> pa.Schema:
    """The columns of a schema's message."""
    return message_columns(message_class(schema).DESCRIPTOR)


class ProtobufDecoder(SchemaDecoder[ProtoSchema]):
    """One message per record."""

    def __init__(self, settings: FormatSettings) -> None:
        protobuf()
        super().__init__(ProtoLanguage(settings.message), settings)

    def columns_of(self, schema: ProtoSchema) -> pa.Schema:
        """Those of its message."""
        return columns_of(schema)

    def rows(
        self, fields: Sequence[pa.Field], reader: ProtoSchema, writers: Mapping[int, ProtoSchema] | None
    ) -> ProtobufRows:
        """See `SchemaDecoder`."""
        return ProtobufRows(fields, reader, writers)


class ProtobufRows:
    """Decodes records into columns; picklable, sent to the executors.

    Fields are identified by number, so records of every version of a message are read with the newest one.
    Columns that it dropped are read with the version that wrote the record.
    """

    def __init__(
        self, fields: Sequence[pa.Field], reader: ProtoSchema, writers: Mapping[int, ProtoSchema] | None
    ) -> None:
        self.reader = reader
        self.writers = writers
        natural: dict[str, pa.DataType] = {}
        for schema in [*(writers or {}).values(), reader]:
            natural |= {f.name: f.type for f in columns_of(schema)}
        self.names = [f.name for f in fields]
        self.types: Sequence[pa.DataType] = [natural.get(f.name, f.type) for f in fields]

    def opened(self) -> Callable[[bytes], Sequence[Any]]:
        """See `python_frames.RowDecoder`."""
        if self.writers is None:
            return self._reading(None)
        writers, made = self.writers, dict[tuple[int, tuple[int, ...]], Any]()

        def decode(record: bytes) -> Sequence[Any]:
            number, rest = unframed(record)
            if number not in writers:
                raise ValueError(f"schema id {number} is not known to the registry as a Protobuf message")
            indexes, payload = message_indexes(rest)
            read = made.get((number, tuple(indexes)))
            if read is None:
                message = writers[number].message_at(indexes)
                if message != self.reader.message:
                    raise ValueError(f'a message "{message}", not "{self.reader.message}"')
                read = made[number, tuple(indexes)] = self._reading(writers[number])
            found: Sequence[Any] = read(payload)
            return found

        return decode

    def _reading(self, writer: ProtoSchema | None) -> Callable[[bytes], Sequence[Any]]:
        newest = message_class(self.reader)
        known = newest.DESCRIPTOR.fields_by_name
        reads = [field_reader(known[name]) if name in known else _nothing for name in self.names]
        older = None if writer is None else message_class(writer, self.reader.message)
        dropped = older.DESCRIPTOR.fields_by_name if older is not None else {}
        others = {
            place: field_reader(dropped[name])
            for place, name in enumerate(self.names)
            if name not in known and name in dropped
        }
        parsed = _parser(newest)
        older_parsed = _parser(older) if older is not None else None

        def decode(payload: bytes) -> Sequence[Any]:
            message = parsed(payload)
            values = [read(message) for read in reads]
            if others and older_parsed is not None:
                message = older_parsed(payload)
                for place, read in others.items():
                    values[place] = read(message)
            return values

        return decode


def _nothing(_: Any) -> None:
    return None


def _parser(kind: Any) -> Callable[[bytes], Any]:
    decode_error = protobuf().message.DecodeError
    name = kind.DESCRIPTOR.full_name

    def parse(payload: bytes) -> Any:
        try:
            return kind.FromString(payload)
        except decode_error as exc:
            raise ValueError(f'not a message "{name}": {exc}') from exc

    return parse


def message_indexes(rest: bytes) -> tuple[list[int], bytes]:
    """The index of a record's message in its file, and the message; a lone zero means the first."""
    count, place = _zigzag(rest, 0)
    if count == 0:
        return [0], rest[place:]
    if not 0 < count <= _DEEPEST_MESSAGE:
        raise ValueError(f"{count} message indexes in the header")
    indexes = []
    for _ in range(count):
        index, place = _zigzag(rest, place)
        indexes.append(index)
    return indexes, rest[place:]


def _zigzag(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(data) or shift > _LONGEST_VARINT:
            raise ValueError("the header ends early")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), place
        shift += 7
