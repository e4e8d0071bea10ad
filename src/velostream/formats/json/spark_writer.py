"""Writes rows as JSON text by Spark SQL: the same bytes as `writer`, for rows that skip Python.

Spark's own `to_json` writes numbers and times differently: a zero with eight places is `0E-8`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.errors import UnsupportedError
from velostream.sql.types import literal, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPECIAL = '["\\\\\\x00-\\x1f]'
_CAPITALS = r"\\u00[01][A-F]"
_UPPER = ("0B", "0E", "0F", "1A", "1B", "1C", "1D", "1E", "1F")
"""Control characters that Spark escapes in upper case, and we in lower case."""
_EMPTY_OBJECT = "'{}'"
_ITEM = "item"
_LINE_END = "\r\n"


def json_object(fields: Sequence[pa.Field], decimals_as_text: bool = False) -> str:
    """SQL over columns of these names and types: one JSON object as a text, never null.

    UnsupportedError names the column whose type Spark cannot write as we do.
    """
    if not fields:
        return _EMPTY_OBJECT
    return _object([(f.name, quote(f.name), f.type) for f in fields], decimals_as_text, ())


def small_letters(column: str) -> str:
    """SQL over a column with such an object: escapes of control characters in lower case."""
    fixed = column
    for code in _UPPER:
        # An even number of backslashes before it is a text's own.
        pattern = rf"(?<!\\)((?:\\\\)*)\\u00{code}"
        small = rf"$1\\u00{code.lower()}"
        fixed = f"regexp_replace({fixed}, {literal(pattern)}, {literal(small)})"
    return f"CASE WHEN {column} RLIKE {literal(_CAPITALS)} THEN {fixed} ELSE {column} END"


def plain_text(column: str, field: pa.Field) -> str:
    """SQL for the plain text of one value, as keys are written; null stays null."""
    kind = field.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column
    whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind)
    if whole or _is_text(kind) or pa.types.is_decimal(kind):
        return f"CAST(CAST({column} AS STRING) AS BINARY)"
    raise _unsupported((field.name,), kind)


def _object(
    parts: Sequence[tuple[str, str, pa.DataType]], decimals_as_text: bool, at: tuple[str, ...]
) -> str:
    pieces: list[str] = []
    for number, (name, value, kind) in enumerate(parts):
        mark = f"{',' if number else '{'}{json.dumps(name, ensure_ascii=False)}:"
        pieces += [literal(mark), _value(value, kind, decimals_as_text, (*at, name))]
    return f"concat({', '.join(pieces)}, '}}')"


def _value(value: str, kind: pa.DataType, decimals_as_text: bool, at: tuple[str, ...]) -> str:
    """The JSON text of a value; `at` is its path, for messages."""
    if pa.types.is_struct(kind):
        inner = [(field.name, f"{value}.{quote(field.name)}", field.type) for field in kind]
        text = _object(inner, decimals_as_text, at) if inner else _EMPTY_OBJECT
        return f"CASE WHEN {value} IS NULL THEN 'null' ELSE {text} END"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = f"{_ITEM}{len(at)}"
        each = _value(item, kind.value_type, decimals_as_text, (*at, "[]"))
        return f"coalesce(concat('[', array_join(transform({value}, {item} -> {each}), ','), ']'), 'null')"
    return f"coalesce({_scalar(value, kind, decimals_as_text, at)}, 'null')"


def _scalar(value: str, kind: pa.DataType, decimals_as_text: bool, at: tuple[str, ...]) -> str:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return f"CAST({value} AS STRING)"
    if pa.types.is_decimal(kind):
        text = f"CAST({value} AS STRING)"
        return _in_quotes(text) if decimals_as_text else text
    if pa.types.is_date32(kind):
        return _in_quotes(f"CAST({value} AS STRING)")
    if pa.types.is_timestamp(kind):
        zone = "'Z'" if kind.tz else ""
        forms = (f"yyyy-MM-dd'T'HH:mm:ss{more}{zone}" for more in ("", ".SSSSSS"))
        whole, parts = (f"date_format({value}, {literal(form)})" for form in forms)
        some = f"extract(SECOND FROM {value}) % 1"
        return _in_quotes(f"CASE WHEN {some} = 0 THEN {whole} ELSE {parts} END")
    if _is_text(kind):
        # Most texts have nothing to escape, which one test shows.
        escaped = f"to_json(named_struct('t', {value}))"
        inner = f"substring({escaped}, 6, length({escaped}) - 6)"
        return f"CASE WHEN {value} RLIKE {literal(_SPECIAL)} THEN {inner} ELSE {_in_quotes(value)} END"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        # Spark breaks base64 into lines, as e-mail needs.
        return _in_quotes(f"replace(base64({value}), {literal(_LINE_END)}, '')")
    raise _unsupported(at, kind)


def _in_quotes(text: str) -> str:
    return f"""concat('"', {text}, '"')"""


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _unsupported(at: tuple[str, ...], kind: pa.DataType) -> UnsupportedError:
    floating = pa.types.is_floating(kind)
    return UnsupportedError(
        f'column "{".".join(at)}" is {"a floating-point number" if floating else f"a {kind}"}, which Spark '
        "writes otherwise than Velostream does",
        hint="cast it to DECIMAL or STRING" if floating else "select its parts, or leave out the column",
    )
