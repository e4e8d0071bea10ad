"""Types of a column that change while it is followed."""

from __future__ import annotations

import re

import pyarrow as pa

_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def wider(before: pa.DataType, now: pa.DataType) -> bool:
    """Whether every value of a type is one of another."""
    if before == now:
        return True
    if pa.types.is_decimal(before) and pa.types.is_decimal(now):
        return bool(
            now.scale >= before.scale and now.precision - now.scale >= before.precision - before.scale
        )
    if before in _WHOLE and now in _WHOLE:
        return _WHOLE.index(now) >= _WHOLE.index(before)
    return bool(before == pa.float32() and now == pa.float64())


def wider_than_written(before: str, now: pa.DataType) -> bool:
    """Whether every value of a type that a log of changes wrote as this text is one of another."""
    if before == str(now):
        return True
    known = before in _TYPES or _DECIMAL.fullmatch(before) is not None
    return known and wider(type_written(before), now)


def type_written(text: str) -> pa.DataType:
    """The type that a log of changes wrote as this text."""
    if found := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(found[1]), int(found[2]))
    return _TYPES[text]


_TYPES = {
    str(kind): kind
    for kind in (
        *_WHOLE,
        *(pa.bool_(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32()),
        *(pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
    )
}
