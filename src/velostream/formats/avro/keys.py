"""Avro keys: of any type, with the header of a schema registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.formats.avro.records import AvroDecoder, AvroLanguage
from velostream.formats.avro.types import AvroSchema, arrow_columns
from velostream.formats.keys import KEY
from velostream.formats.schemas.decoder import SchemaDecoder

if TYPE_CHECKING:
    from velostream.formats.decoder import FormatSettings
    from velostream.formats.schemas.registry_client import Registered, Registry


class _KeyLanguage(AvroLanguage):
    """Avro schemas of any type, wrapped as the only field of a record, which is encoded to the same bytes."""

    def from_registry(self, registry: Registry, found: Registered) -> AvroSchema:
        return _as_field(self.parsed(registry, found))


class AvroKeys(AvroDecoder):
    """One Avro value per key."""

    def __init__(self, settings: FormatSettings) -> None:
        SchemaDecoder.__init__(self, _KeyLanguage(), settings)


def _as_field(schema: AvroSchema) -> AvroSchema:
    top = {"type": "record", "name": f"__{KEY}", "fields": [{"name": KEY, "type": schema.top}]}
    found = AvroSchema(top, schema.named)
    arrow_columns(found)
    return found
