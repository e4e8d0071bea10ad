"""Types of MySQL and MariaDB: what they are here, how they are asked for, and how their text is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

Decode = Callable[[pa.Array], pa.Array]
"""From the text of values, null where they are null; raises ArrowInvalid or ValueError."""

UTC_TIME = pa.timestamp("us", tz="UTC")
_MOST_DIGITS = 38
_BIT_LONG = 63
"""Bits that a BIGINT holds."""
_INTEGERS: dict[str, tuple[pa.DataType, pa.DataType]] = {
    "tinyint": (pa.int8(), pa.int16()),
    "smallint": (pa.int16(), pa.int32()),
    "mediumint": (pa.int32(), pa.int32()),
    "int": (pa.int32(), pa.int64()),
    "bigint": (pa.int64(), pa.decimal128(20, 0)),
    "year": (pa.int32(), pa.int32()),
}
"""Signed, and unsigned: the next type that holds every value."""
TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})
BYTES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"})
SHAPES = frozenset(
    {
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
        *("geometrycollection", "geomcollection"),
    }
)


@dataclass(frozen=True)
class Type:
    """A type of the server's."""

    name: str
    """As the server calls it, without its size."""
    arrow: pa.DataType
    decode: Decode
    asked: str = "{}"
    """How a column of it is asked for: FLOAT would come with six digits, BIT as bytes."""


def type_of(name: str, *, unsigned: bool = False, precision: int = 0, scale: int = 0) -> Type:
    """The type of this name; `precision` is also the number of bits of a BIT.

    TINYINT(1), which BOOLEAN stands for, is a TINYINT: it may hold more than 0 and 1.
    """
    arrow = arrow_of(name, unsigned=unsigned, precision=precision, scale=scale)
    if name == "float":
        return Type(name, arrow, lambda text: text.cast(pa.float64()).cast(pa.float32()), "({} + 0e0)")
    if name == "bit":
        decode = (lambda text: pc.equal(text, "1")) if precision == 1 else _casting(arrow)
        return Type(name, arrow, decode, "({} + 0)")
    if name in ("date", "datetime", "timestamp"):
        return Type(name, arrow, _times(arrow))
    if arrow in (pa.string(), pa.binary()):
        return Type(name, arrow, _same)
    return Type(name, arrow, _casting(arrow))


def arrow_of(name: str, *, unsigned: bool = False, precision: int = 0, scale: int = 0) -> pa.DataType:
    """What a type is here."""
    if name in _INTEGERS:
        return _INTEGERS[name][unsigned]
    if name in ("decimal", "numeric"):
        return pa.decimal128(min(max(precision, 1), _MOST_DIGITS), min(scale, _MOST_DIGITS))
    if name == "bit":
        return (
            pa.bool_() if precision == 1 else pa.int64() if precision <= _BIT_LONG else pa.decimal128(20, 0)
        )
    if name in BYTES or name in SHAPES:
        return pa.binary()
    return _OTHERS.get(name, pa.string())


_OTHERS: dict[str, pa.DataType] = {
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime": UTC_TIME,
    "timestamp": UTC_TIME,
}
"""Everything else is its text: characters, enums, sets, JSON, times of day, addresses."""


def _same(text: pa.Array) -> pa.Array:
    return text


def _casting(target: pa.DataType) -> Decode:
    return lambda text: text.cast(target)


def _times(target: pa.DataType) -> Decode:
    """Dates and moments. The year 0 is the server's mark for no date at all."""

    def decode(text: pa.Array) -> pa.Array:
        if pc.any(pc.starts_with(text, "0000")).as_py():
            raise ValueError
        return text.cast(target) if pa.types.is_date(target) else text.cast(pa.timestamp("us")).cast(target)

    return decode
