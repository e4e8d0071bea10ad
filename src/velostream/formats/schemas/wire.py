"""The header that registry serializers put before a record: a zero byte, then the schema's id."""

from __future__ import annotations

from typing import NamedTuple

MAGIC = 0
HEADER = 5


class Framed(NamedTuple):
    """A record split into the id of its schema and the payload."""

    schema: int
    payload: bytes


def unframed(record: bytes) -> Framed:
    """Split a record; ValueError when there is no such header."""
    if len(record) < HEADER:
        raise ValueError(f"{len(record)} bytes, too few for the header of a schema registry")
    if record[0] != MAGIC:
        raise ValueError(f"the first byte is {record[0]}, not the 0 of a schema registry's header")
    return Framed(int.from_bytes(record[1:HEADER], "big"), record[HEADER:])


def framed(schema: int, payload: bytes) -> bytes:
    """The payload with the header before it."""
    return b"\0" + schema.to_bytes(4, "big") + payload


def schema_ids(records: list[bytes]) -> set[int]:
    """The ids in the headers of some records; records without a header are ignored."""
    return {int.from_bytes(r[1:HEADER], "big") for r in records if len(r) >= HEADER and r[0] == MAGIC}
