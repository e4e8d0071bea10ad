"""PostgreSQL's types: what they are here, and how their text is read.

Rows of a load and changes come as the same text, so that each value is read in one way only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Decode = Callable[[pa.Array], pa.Array]
"""From the text of values, null where they are null; raises ArrowInvalid or ValueError."""

UTC_TIME = pa.timestamp("us", tz="UTC")
_MOST_DIGITS = 38


@dataclass(frozen=True)
class Type:
    """A type of PostgreSQL."""

    name: str
    """As PostgreSQL calls it, with precision and scale."""
    arrow: pa.DataType
    decode: Decode


def type_of(name: str, modifier: int) -> Type:
    """The type with this name in `pg_type`, which is neither an array nor a domain."""
    if name == "numeric":
        return _numeric(modifier)
    arrow, decode = _TYPES.get(name, (pa.string(), _same))
    return Type(name, arrow, decode)


def array_of(inner: Type, delimiter: str) -> Type:
    """An array; `delimiter` is what its text has between two elements."""
    return Type(f"{inner.name}[]", pa.list_(inner.arrow), lambda text: _arrays(text, inner, delimiter))


def _numeric(modifier: int) -> Type:
    if modifier < 4:
        return Type("numeric", pa.decimal128(_MOST_DIGITS, 18), _casting(pa.decimal128(_MOST_DIGITS, 18)))
    precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (modifier - 4) & 0x7FF
    scale = scale - 2048 if scale >= 1024 else scale
    name = f"numeric({precision},{scale})"
    digits = precision if scale >= 0 else precision - scale
    arrow = pa.decimal128(min(max(digits, scale, 1), _MOST_DIGITS), max(min(scale, _MOST_DIGITS), 0))
    return Type(name, arrow, _casting(arrow))


def _same(text: pa.Array) -> pa.Array:
    return text


def _casting(target: pa.DataType) -> Decode:
    return lambda text: text.cast(target)


def _booleans(text: pa.Array) -> pa.Array:
    return pc.equal(text, "t")


def _instants(text: pa.Array) -> pa.Array:
    """`2024-05-01 12:00:00.5+00`; without a zone it is UTC."""
    return text.cast(UTC_TIME)


def _local_times(text: pa.Array) -> pa.Array:
    return text.cast(pa.timestamp("us")).cast(UTC_TIME)


def _bytes(text: pa.Array) -> pa.Array:
    values = [None if value is None else bytes.fromhex(value[2:]) for value in text.to_pylist()]
    return pa.array(values, pa.binary())


def _arrays(text: pa.Array, inner: Type, delimiter: str) -> pa.Array:
    lists = [None if value is None else elements_of(value, delimiter) for value in text.to_pylist()]
    flat = [element for each in lists or () if each is not None for element in each]
    values = inner.decode(pa.array(flat, pa.string()))
    offsets, at = [0], 0
    for each in lists:
        at += len(each or ())
        offsets.append(at)
    nulls = pa.array([each is None for each in lists], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=nulls)


def elements_of(literal: str, delimiter: str = ",") -> list[str | None]:
    """The elements of an array's text, `{a,"b c",NULL}`. An array of several dimensions is read as one row of
    all.

    Bounds that are not 1 stand before it: `[0:1]={a,b}`.
    """
    if literal.startswith("["):
        literal = literal[literal.index("=") + 1 :]
    return list(_elements(literal, delimiter))


def _elements(literal: str, delimiter: str) -> Iterator[str | None]:
    at, end = 0, len(literal)
    while at < end:
        mark = literal[at]
        if mark in "{}" or mark == delimiter:
            at += 1
        elif mark == '"':
            value, at = _quoted(literal, at + 1)
            yield value
        else:
            stop = at
            while stop < end and literal[stop] != "}" and literal[stop] != delimiter:
                stop += 2 if literal[stop] == "\\" else 1
            word = literal[at:stop]
            yield None if word == "NULL" else word.replace("\\", "")
            at = stop


def _quoted(literal: str, at: int) -> tuple[str, int]:
    parts = []
    while literal[at] != '"':
        at += literal[at] == "\\"
        parts.append(literal[at])
        at += 1
    return "".join(parts), at + 1


def array_literal(values: Sequence[Any]) -> str:
    """An array as PostgreSQL writes it."""
    return "{" + ",".join(_element(value) for value in values) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        value = "\\x" + value.hex()
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


_TYPES: dict[str, tuple[pa.DataType, Decode]] = {
    "bool": (pa.bool_(), _booleans),
    "int2": (pa.int16(), _casting(pa.int16())),
    "int4": (pa.int32(), _casting(pa.int32())),
    "int8": (pa.int64(), _casting(pa.int64())),
    "oid": (pa.int64(), _casting(pa.int64())),
    "float4": (pa.float32(), _casting(pa.float32())),
    "float8": (pa.float64(), _casting(pa.float64())),
    "bytea": (pa.binary(), _bytes),
    "date": (pa.date32(), _casting(pa.date32())),
    "timestamp": (UTC_TIME, _local_times),
    "timestamptz": (UTC_TIME, _instants),
}
"""Everything else is its text: enums, uuid, json, ranges, intervals, addresses, money, times of day."""
