"""ClickHouse's types: what the server is asked to send, and what that is here.

The server itself casts each column to a type that Arrow and Spark both have. Texts come as bytes, which are
checked to be UTF-8 here: a String of ClickHouse may hold anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.connectors.databases.rows import UTC_TIME
from velostream.connectors.databases.text_rows import TextColumn
from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

INSTANT = "DateTime64(6, 'UTC')"
"""What every DateTime is sent as, and compared with."""
_MOST_DIGITS = 38
_NUMBERS = {
    "Int8": ("Int8", pa.int8()),
    "Int16": ("Int16", pa.int16()),
    "Int32": ("Int32", pa.int32()),
    "Int64": ("Int64", pa.int64()),
    "UInt8": ("Int16", pa.int16()),
    "UInt16": ("Int32", pa.int32()),
    "UInt32": ("Int64", pa.int64()),
    "UInt64": ("Decimal(20, 0)", pa.decimal128(20, 0)),
    "Float32": ("Float32", pa.float32()),
    "Float64": ("Float64", pa.float64()),
    "BFloat16": ("Float32", pa.float32()),
    "Bool": ("Bool", pa.bool_()),
    "Date": ("Date", pa.date32()),
    "Date32": ("Date32", pa.date32()),
}
_LARGE = ("Int128", "Int256", "UInt128", "UInt256")
_NAMED = re.compile(r"(`(?:[^`\\]|\\.)*`|[A-Za-z_]\w*)\s+(.+)", re.DOTALL)


@dataclass(frozen=True)
class Sent:
    """A type as the server is asked to send it, and what it is here."""

    wire: str
    arrow: pa.DataType
    scalar: bool = True
    """Whether it can be Nullable; arrays, tuples and maps cannot."""


@dataclass(frozen=True)
class Column:
    """A column of a table or query."""

    name: str
    type: str
    """As ClickHouse calls it."""
    wire: str
    arrow: pa.DataType
    decode: Callable[[pa.Array], pa.Array]

    @property
    def text(self) -> TextColumn:
        """How what is sent becomes a column."""
        return TextColumn(self.name, self.arrow, self.decode, self.type)

    @property
    def compared_as(self) -> str:
        """The type with which a value of it is bound to a query."""
        plain = unwrapped(self.type)[0]
        return INSTANT if plain.startswith("DateTime") else "String" if plain.startswith("Enum") else plain

    @property
    def finer_than_here(self) -> bool:
        """Whether its values have digits that are cut off: nanoseconds."""
        name, arguments = parsed(unwrapped(self.type)[0])
        return name == "DateTime64" and int(arguments[0]) > 6


def column_of(name: str, written: str, *, binary: bool = False) -> Column:
    """A column of this type; `binary`: its bytes were declared to be no text."""
    plain, nullable = unwrapped(written)
    kind, arguments = parsed(plain)
    if binary and kind in ("String", "FixedString"):
        return Column(name, written, written, pa.binary(), lambda sent: _bytes(sent, pa.binary()))
    target = _exact(kind, arguments)
    if target is not None:
        wire = "Nullable(String)" if nullable else "String"
        return Column(name, written, wire, target, lambda sent: _text(sent).cast(target))
    sent = sent_as(plain, name)
    wire = f"Nullable({sent.wire})" if nullable and sent.scalar else sent.wire
    return Column(name, written, wire, sent.arrow, lambda array: _bytes(array, sent.arrow))


def sent_as(written: str, column: str) -> Sent:
    """How values of this type are sent, inside of arrays, tuples and maps too."""
    plain, nullable = unwrapped(written)
    kind, arguments = parsed(plain)
    made = _nested(kind, arguments, column) or _scalar(kind, arguments, column)
    if nullable and made.scalar:
        return Sent(f"Nullable({made.wire})", made.arrow, scalar=False)
    return made


def _scalar(kind: str, arguments: list[str], column: str) -> Sent:
    if kind in _NUMBERS:
        return Sent(*_NUMBERS[kind])
    if kind == "Decimal" and int(arguments[0]) <= _MOST_DIGITS:
        precision, scale = (int(each) for each in arguments)
        return Sent(f"Decimal({precision}, {scale})", pa.decimal128(precision, scale))
    if kind.startswith("DateTime"):
        return Sent(INSTANT, UTC_TIME)
    if kind == "AggregateFunction":
        raise SourceConfigError(
            f'column "{column}" holds the state of an aggregate function, not a value',
            hint='select finalizeAggregation(…) of it, with "query" in place of "table"',
        )
    # Enums, UUIDs, addresses, times of day, JSON, Variant, and everything that is yet to come.
    return Sent("String", pa.string())


def _nested(kind: str, arguments: list[str], column: str) -> Sent | None:
    if kind == "Array":
        inner = sent_as(arguments[0], column)
        return Sent(f"Array({inner.wire})", pa.list_(inner.arrow), scalar=False)
    if kind == "Map":
        key, value = (sent_as(each, column) for each in arguments)
        return Sent(f"Map({key.wire}, {value.wire})", pa.map_(key.arrow, value.arrow), scalar=False)
    if kind == "Tuple":
        fields = [_element(text, place, column) for place, text in enumerate(arguments, start=1)]
        wire = ", ".join(f"{quoted(name)} {inner.wire}" for name, inner in fields)
        struct = pa.struct([pa.field(name, inner.arrow) for name, inner in fields])
        return Sent(f"Tuple({wire})", struct, scalar=False)
    if kind == "Nested":
        return _nested("Array", [f"Tuple({', '.join(arguments)})"], column)
    return None


def _element(text: str, place: int, column: str) -> tuple[str, Sent]:
    """An element of a tuple: `name Type`, or a type, which is named by its place, as Spark does."""
    named = _NAMED.fullmatch(text)
    name, written = (named[1], named[2]) if named else (f"_{place}", text)
    if name.startswith("`"):
        name = re.sub(r"\\(.)", r"\1", name[1:-1])
    return name, sent_as(written, column)


def _exact(kind: str, arguments: list[str]) -> pa.DataType | None:
    """The decimal of numbers that may have more digits than there can be: they are sent as text."""
    if kind in _LARGE:
        return pa.decimal128(_MOST_DIGITS, 0)
    if kind == "Decimal" and int(arguments[0]) > _MOST_DIGITS:
        return pa.decimal128(_MOST_DIGITS, min(int(arguments[1]), _MOST_DIGITS))
    return None


def _text(sent: pa.Array) -> pa.Array:
    return _bytes(sent, pa.string())


def _bytes(sent: pa.Array, target: pa.DataType) -> pa.Array:
    """What was sent, as this type; texts are checked, also where the server did not send them as bytes."""
    if pa.types.is_string(sent.type):
        sent = sent.view(pa.binary())
    return sent if sent.type == target else sent.cast(target)


# --- names of types -----------------------------------------------------------------------------------------


def unwrapped(written: str) -> tuple[str, bool]:
    """A type without LowCardinality, Nullable and SimpleAggregateFunction; and whether it was Nullable."""
    nullable = False
    while True:
        kind, arguments = parsed(written)
        if kind == "LowCardinality":
            written = arguments[0]
        elif kind == "Nullable":
            written, nullable = arguments[0], True
        elif kind == "SimpleAggregateFunction":
            written = arguments[-1]
        else:
            return written.strip(), nullable


def parsed(written: str) -> tuple[str, list[str]]:
    """The name of a type and its arguments: `Map(String, Array(Int8))`."""
    name, bracket, rest = written.strip().partition("(")
    if not bracket:
        return name, []
    inside = rest.rstrip()[:-1]
    arguments, start, depth, at = [], 0, 0, 0
    while at < len(inside):
        mark = inside[at]
        if mark in "'`":
            at = _closed(inside, at)
        elif mark == "," and depth == 0:
            arguments.append(inside[start:at].strip())
            start = at + 1
        depth += (mark == "(") - (mark == ")")
        at += 1
    return name, [*arguments, inside[start:].strip()]


def _closed(text: str, at: int) -> int:
    """The place of the quote that ends the one at `at`."""
    quote = text[at]
    at += 1
    while text[at] != quote:
        at += 2 if text[at] == "\\" else 1
    return at


def quoted(name: str) -> str:
    """A name as ClickHouse reads it whatever it holds."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal(text: str) -> str:
    """A text as ClickHouse reads it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
