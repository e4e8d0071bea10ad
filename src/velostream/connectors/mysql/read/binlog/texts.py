"""Characters of row events: they come in the set of their column, and a load gives them in UTF-8."""

from __future__ import annotations

import ipaddress
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.mysql.client.connections import run
from velostream.connectors.mysql.client.tables import OLD_UUID
from velostream.connectors.mysql.read.binlog.table_maps import STRING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from velostream.connectors.mysql.client.connections import Client
    from velostream.connectors.mysql.read.binlog.table_maps import Stored

_BINARY = 63
_UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii"})
_CODECS = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
_LATIN1 = {**{n: bytes([n]).decode("cp1252", "ignore") or chr(n) for n in range(256)}}
"""What MySQL calls latin1 is Windows-1252, in which the five bytes that have no character are themselves."""
_AT_A_TIME = 1000


class Texts:
    """Turns the bytes of columns into text. Rare character sets are left to the server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sets: dict[int, str] = {}
        self._words: dict[tuple[int, tuple[bytes, ...]], list[str]] = {}

    def characters(self, column: Stored, found: pa.Array, kind: str | None) -> pa.Array:
        """The values of a column of characters or bytes; `kind` is its type as the catalogue calls it."""
        if column.collation != _BINARY:
            return self._decoded(self._set_of(column.collation), found)
        if kind in _OWN:
            return _each(found, _OWN[kind])
        # Zeros at the end of a BINARY are not stored.
        return _padded(found, column.scale) if column.code == STRING else found

    def words(self, column: Stored) -> list[str]:
        """The words of an ENUM or a SET."""
        key = (column.collation, column.words)
        if key not in self._words:
            made = self._decoded(self._set_of(column.collation), pa.array(column.words, pa.binary()))
            self._words[key] = made.to_pylist()
        return self._words[key]

    def _set_of(self, collation: int) -> str:
        """The character set of a collation, by its number; the server knows those that were added later."""
        if not self._sets:
            with self._client.session() as connection:
                query = (
                    "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL"
                )
                self._sets = {int(number): str(name) for number, name in run(connection, query)}
        return self._sets.get(collation, "utf8mb4")

    def _decoded(self, name: str, found: pa.Array) -> pa.Array:
        if name in _UTF8:
            return found.cast(pa.string())
        if name == "binary":
            return _each(found, lambda value: value.decode("latin-1"))
        if name in _CODECS:
            codec = _CODECS[name]
            return _each(found, lambda value: value.decode(codec))
        try:
            plain = found.cast(pa.string())
            if pc.all(pc.string_is_ascii(plain)).as_py() is not False:
                return plain
        except pa.ArrowInvalid:
            pass
        if name == "latin1":
            return _each(found, lambda value: "".join(map(_LATIN1.__getitem__, value)))
        return self._converted(name, found)

    def _converted(self, name: str, found: pa.Array) -> pa.Array:
        """Let the server convert the values, each once."""
        different = pc.unique(found.drop_null()).to_pylist()
        known: dict[bytes, str] = {}
        with self._client.session() as connection:
            for start in range(0, len(different), _AT_A_TIME):
                part: Sequence[bytes] = different[start : start + _AT_A_TIME]
                asked = ", ".join(f"CONVERT(_{name} X'{value.hex()}' USING utf8mb4)" for value in part)
                known.update(zip(part, run(connection, f"SELECT {asked}")[0], strict=True))
        return pa.array([None if value is None else known[value] for value in found.to_pylist()], pa.string())


def _each(found: pa.Array, text: Callable[[bytes], str]) -> pa.Array:
    return pa.array([None if value is None else text(value) for value in found.to_pylist()], pa.string())


def _padded(found: pa.Array, size: int) -> pa.Array:
    if pc.all(pc.equal(pc.binary_length(found), size)).as_py() is not False:
        return found
    return pa.array(
        [None if value is None else value.ljust(size, b"\0") for value in found.to_pylist()], pa.binary()
    )


def uuid_text(value: bytes) -> str:
    """A UUID as MariaDB stores it from 10.11.5 on."""
    return str(uuid.UUID(bytes=value.ljust(16, b"\0")))


def old_uuid_text(value: bytes) -> str:
    """A UUID of a table that was made before: its parts are stored in reverse order."""
    value = value.ljust(16, b"\0")
    return str(uuid.UUID(bytes=value[12:16] + value[10:12] + value[8:10] + value[6:8] + value[:6]))


def address_text(value: bytes) -> str:
    """An address of 16 bytes as MariaDB writes it: those that stand for one of four bytes with dots."""
    made = ipaddress.IPv6Address(value.ljust(16, b"\0"))
    if made.ipv4_mapped is not None:
        return f"::ffff:{made.ipv4_mapped}"
    return str(made)


_OWN: dict[str, Callable[[bytes], str]] = {
    "uuid": uuid_text,
    OLD_UUID: old_uuid_text,
    "inet6": address_text,
    "inet4": lambda value: str(ipaddress.IPv4Address(value.ljust(4, b"\0"))),
}
