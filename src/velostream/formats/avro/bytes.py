"""Avro bytes to Python values: functions from the bytes and a place to a value and the place after it.

`single_records` composes them. Damaged bytes raise ValueError; bytes that end early may raise IndexError or
struct.error instead, since checking first would cost time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from velostream.formats.avro.types import Kind

Read = Callable[[bytes, int], tuple[Any, int]]
_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
_LONGEST_VARINT = 63
_WORD = 1 << 64
_DIGITS = Context(prec=60)
_MILLIS_A_DAY = 86_400_000


def read_null(_: bytes, place: int) -> tuple[Any, int]:
    """A null, which takes no bytes."""
    return None, place


def failing(reason: str) -> Read:
    """A reader that raises, for a type that cannot be read."""

    def read(_: bytes, __: int) -> tuple[Any, int]:
        raise ValueError(reason)

    return read


def read_long(data: bytes, place: int) -> tuple[int, int]:
    """A zigzag varint of one to ten bytes."""
    byte = data[place]
    place += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), place
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > _LONGEST_VARINT:
            raise ValueError("a number has more than ten bytes")
    if value >= _WORD:
        raise ValueError("a number has more than 64 bits")
    return (value >> 1) ^ -(value & 1), place


def _int(data: bytes, place: int) -> tuple[int, int]:
    value, place = read_long(data, place)
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise ValueError("a number has more than 32 bits")
    return value, place


def _boolean(data: bytes, place: int) -> tuple[bool, int]:
    byte = data[place]
    if byte > 1:
        raise ValueError(f"{byte} is neither true nor false")
    return byte == 1, place + 1


def _bytes(data: bytes, place: int) -> tuple[bytes, int]:
    size, place = read_long(data, place)
    end = place + size
    if size < 0 or end > len(data):
        raise ValueError("the record ends early")
    return data[place:end], end


def _text(data: bytes, place: int) -> tuple[str, int]:
    raw, place = _bytes(data, place)
    try:
        return raw.decode("utf-8"), place
    except UnicodeDecodeError as exc:
        raise ValueError(f"a text is not valid UTF-8: {exc.reason}") from exc


def physical(ours: Kind, wanted: str) -> Read:
    """A value of a physical type, without regard to its logical type."""
    name = ours.name
    if name == "null":
        return read_null
    if name == "boolean":
        return _boolean
    if name in ("int", "long"):
        whole = _int if name == "int" else read_long
        return _as_float(whole) if wanted in ("float", "double") else whole
    if name in ("float", "double"):
        form = _FLOAT if name == "float" else _DOUBLE
        size = form.size
        return lambda data, place: (form.unpack_from(data, place)[0], place + size)
    if name == "fixed":
        return _fixed(ours.schema["size"])
    return _text if wanted == "string" else _bytes


def _as_float(whole: Read) -> Read:
    def read(data: bytes, place: int) -> tuple[float, int]:
        value, place = whole(data, place)
        return float(value), place

    return read


def _fixed(size: int) -> Read:
    def read(data: bytes, place: int) -> tuple[bytes, int]:
        end = place + size
        if end > len(data):
            raise ValueError("the record ends early")
        return data[place:end], end

    return read


def logical(read: Read, kind: Kind) -> Read:
    """A reader that converts values to their logical type."""
    convert = logical_value(kind)

    def converted(data: bytes, place: int) -> tuple[Any, int]:
        value, place = read(data, place)
        return convert(value), place

    return converted


def logical_value(kind: Kind) -> Callable[[Any], Any]:
    """The conversion of a logical type's values to what Arrow expects."""
    logical = kind.logical or ""
    if logical == "decimal":
        return _decimal(kind.schema["precision"], kind.schema.get("scale", 0))
    if logical == "uuid":
        return lambda value: str(UUID(bytes=value)) if isinstance(value, bytes) else value
    if logical.endswith("timestamp-millis"):
        return lambda value: value * 1000
    if logical.startswith("time-"):
        return lambda value: _time_text(value, 1000 if logical.endswith("millis") else 1)
    return lambda value: value


def _decimal(precision: int, scale: int) -> Callable[[Any], Any]:
    limit = 10**precision

    def convert(value: bytes) -> Decimal:
        whole = int.from_bytes(value, "big", signed=True)
        if not -limit < whole < limit:
            raise ValueError(f"a decimal has more than {precision} digits")
        return Decimal(whole).scaleb(-scale, _DIGITS)

    return convert


def _time_text(count: int, factor: int) -> str:
    micros = count * factor
    if not 0 <= micros < _MILLIS_A_DAY * 1000:
        raise ValueError(f"{count} is not a time of day")
    seconds, micros = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{micros:06d}" if micros else text


def enumerated(symbols: Sequence[str], theirs: Any) -> Read:
    """An enum symbol; one that the reader's schema lacks becomes its default."""
    known, default = frozenset(theirs["symbols"]), theirs.get("default")

    def read(data: bytes, place: int) -> tuple[str, int]:
        number, place = read_long(data, place)
        if not 0 <= number < len(symbols):
            raise ValueError(f"an enum has no symbol {number}")
        symbol = symbols[number]
        if symbol in known:
            return symbol, place
        if default is None:
            raise ValueError(f'"{symbol}" is not a symbol of its enum')
        return default, place

    return read


def union(options: Sequence[Read]) -> Read:
    """A union: the number of a branch, then a value of its type."""

    def read(data: bytes, place: int) -> tuple[Any, int]:
        number, place = read_long(data, place)
        if not 0 <= number < len(options):
            raise ValueError(f"a union has no type {number}")
        return options[number](data, place)

    return read


def member(read: Read, name: str) -> Read:
    """A value as a struct with the name of its union branch."""

    def named(data: bytes, place: int) -> tuple[Any, int]:
        value, place = read(data, place)
        return {name: value}, place

    return named


def _block(data: bytes, place: int) -> tuple[int, int]:
    """The number of items in a block, at most one per byte left: a few bytes could claim billions."""
    count, place = read_long(data, place)
    if count < 0:
        count, (_, place) = -count, read_long(data, place)
    if count > len(data) - place:
        raise ValueError("the record ends early")
    return count, place


def array(item: Read) -> Read:
    """Items in blocks."""

    def read(data: bytes, place: int) -> tuple[Any, int]:
        values: list[Any] = []
        count, place = _block(data, place)
        while count:
            for _ in range(count):
                value, place = item(data, place)
                values.append(value)
            count, place = _block(data, place)
        return values, place

    return read


def mapping(item: Read) -> Read:
    """Pairs in blocks; the last of equal keys wins."""

    def read(data: bytes, place: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        count, place = _block(data, place)
        while count:
            for _ in range(count):
                key, place = _text(data, place)
                values[key], place = item(data, place)
            count, place = _block(data, place)
        return list(values.items()), place

    return read


def named_record(steps: Sequence[tuple[str | None, Read]]) -> Read:
    """A record by name."""

    def read(data: bytes, place: int) -> tuple[Any, int]:
        values = {}
        for name, step in steps:
            value, place = step(data, place)
            if name is not None:
                values[name] = value
        return values, place

    return read


def listed_record(steps: Sequence[tuple[str | None, Read]], places: dict[str, int]) -> Read:
    """A record as a list, with the fields in given places."""
    numbered = [(None if name is None else places[name], step) for name, step in steps]
    nothing: list[Any] = [None] * len(places)

    def read(data: bytes, place: int) -> tuple[Any, int]:
        values = nothing.copy()
        for number, step in numbered:
            value, place = step(data, place)
            if number is not None:
                values[number] = value
        return values, place

    return read
