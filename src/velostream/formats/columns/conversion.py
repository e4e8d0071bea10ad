"""Text to typed columns, as Spark SQL: exact, or marked as bad.

Spark's own CSV and JSON parsers silently round a decimal to the declared scale, so numbers with a fraction
are parsed as text and converted here; or, faster, with more decimal places than the column has, and compared
with the column's value. A value that does not fit gives NULL, and `bad` is then true.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from velostream.errors import SourceConfigError
from velostream.formats.columns.types import spark_name
from velostream.sql.types import literal, quote

EXTRA_PLACES = 10
"""The additional decimal places with which a compared decimal is parsed.

With 10, amounts of money up to 900,000 still fit a machine word in Java, and parsing costs the same as with
the declared type; 20 cost a third more.
"""
_WIDEST_COMPARED = 38 - EXTRA_PLACES
LOST_DIGITS = (
    "octet_length({0}) > 15 AND {0} RLIKE '^-?[0-9]++[.][0-9]++(?:E-?[0-9]++)?$|^[{{\\\\[].*[0-9.]{{17}}'"
)
"""Whether a text may be, or contain, a number that went through a double and lost digits."""
_DOUBLE_TEXT = 24
"""The longest text of a double; longer mantissas with an exponent may have digits that a double lacks."""


@dataclass(frozen=True)
class Converted:
    """A column out of text: the type to parse it as, its value, and when it is bad (None: never).

    With `text`, it is bad exactly when the value is NULL and `text` is not.
    """

    parsed_as: str
    value: str
    bad: str | None
    text: str | None = None


def from_csv_text(column: str, kind: pa.DataType) -> Converted:
    """A field of a CSV record, given the SQL of its text."""
    if pa.types.is_nested(kind):
        raise SourceConfigError(f"a CSV field cannot be read as {spark_name(kind)}")
    value = _scalar(column, kind)
    return _of_text(column, value) if value != column else Converted("STRING", value, None)


def from_json_value(column: str, kind: pa.DataType, depth: int = 0, *, fast: bool = False) -> Converted:
    """A value of a JSON object, given the SQL of what Spark parsed.

    With `fast`, some good values count as bad, and numbers with non-zero digits beyond `EXTRA_PLACES` must
    not reach it.
    """
    if pa.types.is_struct(kind):
        return _struct(column, kind, depth, fast)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _array(column, kind, depth, fast)
    if pa.types.is_map(kind):
        return _map(column, kind, depth, fast)
    if fast:
        quick = _fast_scalar(column, kind)
        if quick is not None:
            return quick
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_text(kind):
        # Spark's parser is exact for these, and distinguishes a number from a text.
        return Converted(spark_name(kind), column, None)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return Converted("BINARY", column, None)
    return _of_text(column, _scalar(column, kind))


def compared(kind: pa.DataType) -> bool:
    """Whether a decimal is parsed with more places and compared."""
    return bool(pa.types.is_decimal(kind) and kind.precision <= _WIDEST_COMPARED)


def _fast_scalar(column: str, kind: pa.DataType) -> Converted | None:
    if compared(kind):
        parsed = f"DECIMAL({kind.precision + EXTRA_PLACES},{kind.scale + EXTRA_PLACES})"
        value = f"CAST({column} AS {spark_name(kind)})"
        return Converted(parsed, value, f"({value} <> {column})")
    if pa.types.is_floating(kind):
        # 1e400 becomes infinite here, like a text that says so.
        return Converted(spark_name(kind), column, f"(abs({column}) = double('Infinity'))")
    if is_text(kind):
        return Converted("STRING", column, f"({LOST_DIGITS.format(column)})")
    return None


def is_text(kind: pa.DataType) -> bool:
    """Whether values of any form are kept as text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


def _of_text(column: str, value: str) -> Converted:
    return Converted("STRING", value, f"({column} IS NOT NULL AND {value} IS NULL)", column)


def _scalar(column: str, kind: pa.DataType) -> str:
    if is_text(kind):
        return column
    if pa.types.is_decimal(kind):
        return exact_decimal(column, kind.precision, kind.scale)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"CAST({column} AS BINARY)"
    if pa.types.is_boolean(kind):
        # A cast would also accept 1, y and t, which mean something else in a column of flags.
        return f"CASE lower(trim({column})) WHEN 'true' THEN true WHEN 'false' THEN false END"
    return f"try_cast({column} AS {spark_name(kind)})"


def exact_decimal(column: str, precision: int, scale: int) -> str:
    """SQL for the decimal that a text holds; NULL when it is none, or digits would be cut.

    First branch, which most amounts of money take: too few characters after the point for an exponent below
    one. Second: no such exponent (no `-` past the sign) and no more digits after the point than the type has.
    Third: an exponent; the result is right when it has the same digits as far as 38 of them reach, and is not
    zero because it is too small to be seen; where 38 reach no further than the text may, it must also be the
    same double. Fourth: zeros too many.
    """
    name = f"DECIMAL({precision},{scale})"
    cast = f"try_cast({column} AS {name})"
    places = 38 - (precision - scale)
    widest = f"DECIMAL(38,{places})"
    double = f"try_cast({column} AS DOUBLE)"
    seen = f"({cast} <> 0 OR {double} = 0)"
    if places < _DOUBLE_TEXT + scale - 4:
        seen = f"CAST({cast} AS DOUBLE) = {double}"
    return (
        f"CASE WHEN octet_length({column}) - instr({column}, '.') <= {min(scale, 2)} THEN {cast}"
        f" WHEN locate('-', {column}, 2) = 0 AND (instr({column}, '.') = 0"
        f" OR octet_length({column}) - instr({column}, '.') <= {scale}) THEN {cast}"
        f" WHEN {column} RLIKE '[eE]' THEN CASE WHEN length({column}) <= {_DOUBLE_TEXT}"
        f" AND {seen} AND CAST({cast} AS {widest}) = try_cast({column} AS {widest}) THEN {cast} END"
        f" WHEN {column} RLIKE '^\\\\s*[-+]?\\\\d*\\\\.\\\\d{{0,{scale}}}0*\\\\s*$' THEN {cast} END"
    )


def _struct(column: str, kind: pa.DataType, depth: int, fast: bool) -> Converted:
    parts = {f.name: from_json_value(f"{column}.{quote(f.name)}", f.type, depth, fast=fast) for f in kind}
    parsed = ", ".join(f"{quote(name)}: {part.parsed_as}" for name, part in parts.items())
    bad = [part.bad for part in parts.values() if part.bad]
    if not bad:
        return Converted(f"STRUCT<{parsed}>", column, None)
    fields = ", ".join(f"{literal(name)}, {part.value}" for name, part in parts.items())
    value = f"CASE WHEN {column} IS NOT NULL THEN named_struct({fields}) END"
    return Converted(f"STRUCT<{parsed}>", value, f"({' OR '.join(bad)})")


def _array(column: str, kind: pa.DataType, depth: int, fast: bool) -> Converted:
    item = f"x{depth}"
    part = from_json_value(item, kind.value_type, depth + 1, fast=fast)
    if part.bad is None:
        return Converted(f"ARRAY<{part.parsed_as}>", column, None)
    return Converted(
        f"ARRAY<{part.parsed_as}>",
        f"transform({column}, {item} -> {part.value})",
        f"coalesce(exists({column}, {item} -> {part.bad}), false)",
    )


def _map(column: str, kind: pa.DataType, depth: int, fast: bool) -> Converted:
    item = f"x{depth}"
    part = from_json_value(item, kind.item_type, depth + 1, fast=fast)
    parsed = f"MAP<{spark_name(kind.key_type)}, {part.parsed_as}>"
    if part.bad is None:
        return Converted(parsed, column, None)
    return Converted(
        parsed,
        f"transform_values({column}, (k{depth}, {item}) -> {part.value})",
        f"coalesce(exists(map_values({column}), {item} -> {part.bad}), false)",
    )
