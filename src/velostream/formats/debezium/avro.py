"""Debezium envelopes in Avro."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import SourceConfigError
from velostream.formats.avro.records import AvroLanguage, AvroRows
from velostream.formats.avro.types import AvroSchema, arrow_columns, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from velostream.formats.debezium.envelopes import Envelope
    from velostream.formats.schemas.origins import Schemas
    from velostream.formats.schemas.registry_client import Registered, Registry

_MEANINGS = {
    "io.debezium.time.Timestamp": "timestamp-millis",
    "io.debezium.time.MicroTimestamp": "timestamp-micros",
    "io.debezium.time.Date": "date",
}
"""Schema names by which Debezium marks what Avro has no logical type for."""


class EnvelopeLanguage(AvroLanguage):
    """Avro with Debezium's own schema names interpreted."""

    def from_file(self, path: Path) -> AvroSchema:
        """See `AvroLanguage`."""
        return _meant(super().from_file(path))

    def from_registry(self, registry: Registry, found: Registered) -> AvroSchema:
        """See `AvroLanguage`."""
        return _meant(super().from_registry(registry, found))


def _meant(schema: AvroSchema) -> AvroSchema:
    named = {name: _with_meaning(one) for name, one in schema.named.items()}
    found = AvroSchema(_with_meaning(schema.top), named)
    row_columns(found)
    return found


def _with_meaning(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_meaning(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: value for key, value in schema.items() if not key.startswith("__")}
    for key in ("type", "items", "values"):
        if isinstance(found.get(key), dict | list):
            found[key] = _with_meaning(found[key])
    if "fields" in found:
        found["fields"] = [_with_meaning(one) for one in found["fields"]]
    meaning = _MEANINGS.get(str(found.get("connect.name")))
    if meaning is not None and "logicalType" not in found:
        found["logicalType"] = meaning
    return found


def row_columns(schema: AvroSchema) -> pa.Schema:
    """The columns of the rows of an envelope's schema; SourceConfigError when it is no envelope."""
    columns = arrow_columns(schema)
    if not {"before", "after", "op"} <= set(columns.names) or not pa.types.is_struct(
        columns.field("after").type
    ):
        name = kind_of(schema.top, schema).schema.get("name")
        raise SourceConfigError(f'Avro record "{name}" is not an envelope of Debezium')
    return pa.schema(list(columns.field("after").type))


class AvroEnvelopes:
    """Decodes envelopes into columns; picklable, sent to the executors."""

    def __init__(self, fields: Sequence[pa.Field], schemas: Schemas[AvroSchema]) -> None:
        reader = schemas.reader()
        if reader is None:
            raise SourceConfigError("the schema registry has no schema of these records yet")
        rows = row_columns(reader)
        there = set(rows.names)
        self.types: Sequence[pa.DataType] = [
            rows.field(f.name).type if f.name in there else f.type for f in fields
        ]
        columns = arrow_columns(reader)
        wanted = [columns.field(name) for name in ("op", "before", "after")]
        writers = dict(schemas.known) if schemas.registry is not None else None
        self.rows = AvroRows(wanted, reader, writers)

    def opened(self) -> Callable[[bytes], Envelope]:
        """A function that decodes one envelope; ValueError says why it cannot."""
        from velostream.formats.debezium.envelopes import Envelope

        decode = self.rows.opened()
        return lambda record: Envelope(*decode(record))
