"""MySQL's binary JSON as the text that the server writes of it.

https://dev.mysql.com/doc/dev/mysql-server/latest/json__binary_8h.html
"""

from __future__ import annotations

import base64
import json
import struct
from decimal import Decimal

import pyarrow as pa

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = 0, 1, 2, 3, 4
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING, _OPAQUE = 5, 6, 7, 8, 9, 10, 11, 12, 15
_LITERALS = {0: "null", 1: "true", 2: "false"}
_NUMBERS = {_INT16: "<h", _UINT16: "<H", _INT32: "<i", _UINT32: "<I", _INT64: "<q", _UINT64: "<Q"}
_INLINE = frozenset({_LITERAL, _INT16, _UINT16})
_DECIMAL, _DATE, _TIME, _DATETIME, _TIMESTAMP = 246, 10, 11, 12, 7


def json_texts(found: pa.Array) -> pa.Array:
    """The documents of a column."""
    return pa.array([None if value is None else json_text(value) for value in found.to_pylist()], pa.string())


def json_text(data: bytes) -> str:
    """One document. A partial update of one has no bytes of its own, and is not known here."""
    if not data:
        return "null"
    return _value(data[0], data, 1)


def _value(kind: int, data: bytes, at: int) -> str:
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT):
        return _object(data, at, large=kind == _LARGE_OBJECT)
    if kind in (_SMALL_ARRAY, _LARGE_ARRAY):
        return _array(data, at, large=kind == _LARGE_ARRAY)
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind in _NUMBERS:
        return str(struct.unpack_from(_NUMBERS[kind], data, at)[0])
    if kind == _DOUBLE:
        return double_text(struct.unpack_from("<d", data, at)[0])
    if kind == _STRING:
        size, at = _length(data, at)
        return quoted(data[at : at + size].decode())
    assert kind == _OPAQUE, f"JSON of kind {kind}"
    inner = data[at]
    size, at = _length(data, at + 1)
    return _opaque(inner, data[at : at + size])


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length of seven bits in each byte, the least first."""
    size = shift = 0
    while True:
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return size, at


def _object(data: bytes, at: int, *, large: bool) -> str:
    count, width = _count(data, at, large=large)
    keys = []
    place = at + 2 * width
    for _ in range(count):
        where = int.from_bytes(data[place : place + width], "little")
        size = int.from_bytes(data[place + width : place + width + 2], "little")
        keys.append(data[at + where : at + where + size].decode())
        place += width + 2
    values = _entries(data, at, place, count, large=large)
    pairs = [f"{quoted(key)}: {value}" for key, value in zip(keys, values, strict=True)]
    return "{" + ", ".join(pairs) + "}"


def _array(data: bytes, at: int, *, large: bool) -> str:
    count, width = _count(data, at, large=large)
    return "[" + ", ".join(_entries(data, at, at + 2 * width, count, large=large)) + "]"


def _count(data: bytes, at: int, *, large: bool) -> tuple[int, int]:
    width = 4 if large else 2
    return int.from_bytes(data[at : at + width], "little"), width


def _entries(data: bytes, base: int, place: int, count: int, *, large: bool) -> list[str]:
    """Small values stand in their entries, others at a place that the entry tells."""
    width = 4 if large else 2
    made = []
    for _ in range(count):
        kind = data[place]
        if kind in _INLINE or (large and kind in (_INT32, _UINT32)):
            made.append(_value(kind, data, place + 1))
        else:
            where = int.from_bytes(data[place + 1 : place + 1 + width], "little")
            made.append(_value(kind, data, base + where))
        place += 1 + width
    return made


def quoted(text: str) -> str:
    """A string as the server writes it: characters beyond ASCII as they are."""
    return json.dumps(text, ensure_ascii=False)


def double_text(value: float) -> str:
    """A double as the server writes it: the fewest digits that tell it."""
    text = repr(value)
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    mantissa, _, exponent = text.partition("e")
    whole, _, part = mantissa.partition(".")
    part = part.rstrip("0") if part != "0" else ""
    digits = (whole + part).lstrip("0")
    if not digits:
        return f"{sign}0.0"
    # The number is 0.digits times ten to the power of `point`.
    point = len(whole) + int(exponent or 0) - (len(whole + part) - len(digits))
    digits = digits.rstrip("0")
    return sign + _written(digits, point)


def _written(digits: str, point: int) -> str:
    """As the function `my_gcvt` of the server does."""
    if not 1 - _PLAIN <= point <= _PLAIN:
        body = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        return f"{body}e{point - 1}"
    if point <= 0:
        return "0." + "0" * -point + digits
    if point >= len(digits):
        return digits + "0" * (point - len(digits)) + ".0"
    return digits[:point] + "." + digits[point:]


_PLAIN = 15
"""Digits before the point, or zeros after it, with which a number has no exponent yet."""


def _opaque(kind: int, data: bytes) -> str:
    if kind == _DECIMAL:
        return str(_decimal(data))
    if kind in (_DATE, _TIME, _DATETIME, _TIMESTAMP):
        return quoted(_moment(kind, struct.unpack_from("<q", data)[0]))
    return quoted(f"base64:type{kind}:{base64.b64encode(data).decode()}")


def _decimal(data: bytes) -> Decimal:
    precision, scale, packed = data[0], data[1], bytearray(data[2:])
    negative = not packed[0] & 0x80
    packed[0] ^= 0x80
    if negative:
        packed = bytearray(byte ^ 0xFF for byte in packed)
    widths = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    left, rest = (precision - scale) % 9, scale % 9
    groups = [left] * (left > 0) + [9] * ((precision - scale) // 9) + [9] * (scale // 9) + [rest] * (rest > 0)
    whole = at = 0
    for digits in groups:
        whole = whole * 10**digits + int.from_bytes(packed[at : at + widths[digits]], "big")
        at += widths[digits]
    return Decimal((int(negative), tuple(map(int, str(whole))), -scale))


def _moment(kind: int, packed: int) -> str:
    """Dates and times are packed like those of columns, with microseconds in the lowest 24 bits."""
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    micros, whole = packed & 0xFFFFFF, packed >> 24
    clock = f"{whole >> 6 & 63:02d}:{whole & 63:02d}.{micros:06d}"
    if kind == _TIME:
        return f"{sign}{whole >> 12 & 1023:02d}:{clock}"
    months = whole >> 22
    date = f"{months // 13:04d}-{months % 13:02d}-{whole >> 17 & 31:02d}"
    return date if kind == _DATE else f"{date} {whole >> 12 & 31:02d}:{clock}"
