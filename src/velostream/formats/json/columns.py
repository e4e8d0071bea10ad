"""Spark SQL that decodes JSON records exactly; see `records`."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.formats.columns.conversion import (
    EXTRA_PLACES,
    LOST_DIGITS,
    Converted,
    compared,
    from_json_value,
    is_text,
)
from velostream.formats.columns.dataframes import BAD_ROW, RECORD, all_looked_at, column_values, option_map
from velostream.formats.columns.lazy import LazyFrame
from velostream.formats.json.escapes import half_a_pair_sql
from velostream.model.columns import BAD
from velostream.sql.types import literal, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

_TEXT = "__text"
_PARSED = "__parsed"
_WHOLE = "__whole"
_ITEMS = "__items"
_NUMBERED = "__numbered"
_ENDED = "__ended"
_CORRUPT = "__corrupt"
_UNFIT = literal("the record cannot be decoded")
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
_LONGEST_EXACT = 15
"""Digits that survive when Spark converts a number to a text column, which it does through a double."""
_QUOTED = r'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NUMBER = r"-?\d++(?:\.\d++)?(?:[eE][-+]?\d++)?"
_LONG = rf"[0-9.]{{{_LONGEST_EXACT + 1}}}"
_PASSED_OVER = rf'[^"0-9-]++|{_QUOTED}|-(?!\d)|-?\d++(?![.eE])|(?!-?{_LONG}){_NUMBER}'
_NEXT_LONG = rf"\G((?:{_PASSED_OVER})*+)({_NUMBER})"
"""Matches the next number with more digits than survive, from the end of the last match on.

All repetition is possessive, which Java evaluates in a loop and not by recursion: records may be long.
"""
_TRIMMED = f"rtrim(' \\t\\r\\n', {_TEXT})"
_EXPONENTS = ("e-", "E-")
_INNER = f"CAST(substring(CAST({_TEXT} AS BINARY), 1, octet_length({_TEXT}) - 1) AS STRING)"
_FLAT = f"(endswith({_TEXT}, '}}') AND NOT contains({_INNER}, '}}'))"
"""Whether the text ends with its first closing brace, so that nothing can follow its object."""
_HIDING = rf"[eE]-|[.][0-9]*(?:0{{{EXTRA_PLACES}}}|9{{{EXTRA_PLACES}}})"
"""Patterns in numbers that can hide digits from a compared decimal."""


def decode_fast(records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str] = ()) -> DataFrame:
    """Fails at the first record that is bad, or that only the careful way reads exactly."""
    through = [quote(name) for name in passed]
    converted = _converted(fields, fast=True)
    scalars = list(_scalars(field.type for field in fields))
    mark = f"__{secrets.token_hex(8)}"
    ddl = [f"{quote(name)} {part.parsed_as}" for name, part in converted.items()]
    parse = _from_json(_WHOLE, [*ddl, f"{mark} TINYINT"], {"mode": "FAILFAST"})
    unended = f"(NOT endswith({_TEXT}, '}}') AND NOT endswith({_TRIMMED}, '}}'))"
    decimals = any(map(compared, scalars))
    doubts = [unended, f"NOT is_valid_utf8({_TEXT})", half_a_pair_sql(_TEXT)]
    doubtful = " OR ".join([*doubts, *([_hiding()] if decimals else [])])
    texts = LazyFrame(records).selectExpr(f"CAST({RECORD} AS STRING) AS {_TEXT}", *through)
    texts = texts.where(f"{_TEXT} IS NULL OR NOT ({doubtful}) OR {_refused('a record is doubtful')}")
    # Arguments of a parser are not compiled and cost three times as much, so they are computed before; the
    # non-deterministic number keeps Spark from moving them back.
    source = _long_numbers_quoted() if any(map(_wide, scalars)) else _TEXT
    kept = [f"{_FLAT} AS {_ENDED}", f"monotonically_increasing_id() AS {_NUMBERED}"]
    kept += [_TEXT] if decimals else []
    whole = texts.selectExpr(
        f"CASE WHEN {_FLAT} THEN {source} ELSE {_marked(source, mark)} END AS {_WHOLE}", *kept, *through
    )
    others = [_ENDED, _NUMBERED, *([_TEXT] if decimals else [])]
    parsed = whole.selectExpr(f"{parse} AS {_PARSED}", *others, *through)
    ended = f"{_ENDED} OR {_PARSED} IS NULL OR {_PARSED}.{mark} IS NOT NULL"
    values = column_values(converted, {}, careful=False)
    frame = parsed.selectExpr(*values, *through, f"({ended}) AS {_ENDED}", *others[1:])
    conditions = [f"({_ENDED} OR {_refused('text after a JSON object')})", f"{_NUMBERED} >= 0"]
    conditions += _conditions(fields) if decimals else []
    conditions += [_kept_digits(f.name) for f in fields if is_text(f.type)]
    return all_looked_at(frame, [field.name for field in fields], conditions).drop(*others).frame()


def _conditions(fields: Sequence[pa.Field]) -> list[str]:
    """Conditions: no amount became zero because it is too small to be represented."""
    simple = all(compared(f.type) for f in fields if any(map(compared, _scalars([f.type]))))
    zero = " OR ".join(f"{quote(f.name)} = 0" for f in fields if compared(f.type)) if simple else "true"
    exponent = " OR ".join(f"contains({_TEXT}, '{sign}')" for sign in _EXPONENTS)
    tiny = f"(({exponent}) AND {_in_numbers('[eE]-')})"
    return [
        f"(NOT coalesce({zero}, false) OR NOT coalesce({tiny}, false) OR {_refused('a number is doubtful')})"
    ]


def _kept_digits(name: str) -> str:
    lost = LOST_DIGITS.format(quote(name))
    return f"(NOT coalesce({lost}, false) OR {_refused(f'a text of column {name} is doubtful')})"


def decode_with_care(records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str] = ()) -> DataFrame:
    """The columns and `_bad`."""
    through = [quote(name) for name in passed]
    converted = _converted(fields, fast=False)
    ddl = [f"{quote(name)} {part.parsed_as}" for name, part in converted.items()]
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parse = _from_json(_WHOLE, [*ddl, f"{_CORRUPT} STRING"], options)
    mark = f"__{secrets.token_hex(8)}"
    # Within brackets and with a second object after it, the record must be exactly one object.
    items = f"""concat('[', {_TEXT}, ',{{"{mark}":1}}]')"""
    alone = f"from_json({items}, 'ARRAY<STRUCT<{mark}: TINYINT>>', {option_map(_STRICT)})"
    texts = records.selectExpr(f"CAST({RECORD} AS STRING) AS {_TEXT}", *through)
    whole = texts.selectExpr(f"{_long_numbers_quoted()} AS {_WHOLE}", f"{alone} AS {_ITEMS}", _TEXT, *through)
    parsed = whole.selectExpr(f"{parse} AS {_PARSED}", _ITEMS, _TEXT, *through)
    doubts = [
        f"NOT is_valid_utf8({_TEXT})",
        half_a_pair_sql(_TEXT),
        f"NOT coalesce(size({_ITEMS}) = 2 AND {_ITEMS}[0] IS NOT NULL AND {_ITEMS}[1].{mark} = 1, false)",
        f"{_PARSED}.{_CORRUPT} IS NOT NULL",
        *(part.bad for part in converted.values() if part.bad),
    ]
    bad = f"CASE WHEN {_TEXT} IS NOT NULL AND ({' OR '.join(doubts)}) THEN {_UNFIT} END AS {BAD}"
    return parsed.selectExpr(*column_values(converted, {}, careful=True), *through, bad)


def _converted(fields: Sequence[pa.Field], *, fast: bool) -> dict[str, Converted]:
    found = {}
    for field in fields:
        column = f"{_PARSED}.{quote(field.name)}"
        # Texts are checked where they are extracted, see `_kept_digits`.
        quick = fast and not is_text(field.type)
        found[field.name] = from_json_value(column, field.type, fast=quick)
    return found


def _from_json(text: str, ddl: Sequence[str], options: dict[str, str]) -> str:
    return f"from_json({text}, {literal(', '.join(ddl))}, {option_map({**_STRICT, **options})})"


def _marked(text: str, mark: str) -> str:
    """A record that ends with a brace, with one more field: missing if its object ends earlier."""
    end = f',"{mark}":1}}'.encode().hex()
    trimmed = f"rtrim(' \\t\\r\\n', {text})"
    cut = f"CASE WHEN endswith({text}, '}}') THEN {_but_last(text)} ELSE {_but_last(trimmed)} END"
    return f"CAST(concat({cut}, X'{end}') AS STRING)"


def _but_last(text: str) -> str:
    """All but the last byte, as bytes: cutting bytes is faster than cutting characters."""
    raw = f"CAST({text} AS BINARY)"
    return f"substring({raw}, 1, octet_length({raw}) - 1)"


def _refused(why: str) -> str:
    return f"raise_error({literal(f'{BAD_ROW}: {why}')})"


def _hiding() -> str:
    """Whether digits may hide in a number; the full test is done for few records only.

    With an exponent, a point may be among the zeros or nines that hide them.
    """
    runs = " OR ".join(f"contains({_TEXT}, '{digit * (EXTRA_PLACES // 2)}')" for digit in "09")
    signs = ["0" * EXTRA_PLACES, "9" * EXTRA_PLACES, *_EXPONENTS]
    contained = " OR ".join(f"contains({_TEXT}, '{sign}')" for sign in signs)
    return f"(({runs}) AND ({contained}) AND {_in_numbers(_HIDING)})"


def _in_numbers(pattern: str) -> str:
    return f"regexp_replace({_TEXT}, {literal(_QUOTED)}, '') RLIKE {literal(pattern)}"


def _long_numbers_quoted() -> str:
    """The record with numbers that a double cannot hold as texts."""
    quote = f"regexp_replace({_TEXT}, {literal(_NEXT_LONG)}, '$1\"$2\"')"
    return f"CASE WHEN {_TEXT} RLIKE {literal(_LONG)} THEN {quote} ELSE {_TEXT} END"


def _scalars(kinds: Iterable[pa.DataType]) -> Iterator[pa.DataType]:
    """The types of the values within."""
    for kind in kinds:
        if pa.types.is_nested(kind):
            yield from _scalars(kind.field(number).type for number in range(kind.num_fields))
        else:
            yield kind


def _wide(kind: pa.DataType) -> bool:
    """Whether it is a decimal that is converted from its text."""
    return bool(pa.types.is_decimal(kind) and not compared(kind))
