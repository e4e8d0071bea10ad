"""DataFrames of records to DataFrames of columns.

A frame of records has a string column `record` and any further columns, which are passed on. The result has
the wanted columns and the further ones. A `careful` frame also has `_bad`: the record when it could not be
decoded, else NULL; any other frame fails in Spark at the first such record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from velostream.formats.columns.conversion import Converted, from_csv_text, from_json_value
from velostream.formats.columns.types import spark_name
from velostream.formats.json.escapes import half_a_pair_sql
from velostream.model.columns import BAD, POSITION
from velostream.sql.types import literal, quote

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import DataFrame, DataFrameReader

    from velostream.formats.columns.lazy import LazyFrame
    from velostream.formats.csv.text import CsvDialect

    Frame = TypeVar("Frame", DataFrame, LazyFrame)

RECORD = "record"
BAD_ROW = "VELOSTREAM_BAD_ROW"
"""Prefix of the Spark error that a bad value causes in a frame that is not careful."""
_MOST_NAMED = 1000
"""More positions than this are joined rather than written into the query."""
_CORRUPT = "__corrupt"
_MOST_FIELDS = 20480
"""The most fields that Spark's parser accepts, unless configured otherwise."""
_STRICT = {"allowNonNumericNumbers": "false", "allowSingleQuotes": "false"}
_PARSED = "__parsed"
_SEEN = "__seen"
_PATTERNS = {delimiter: delimiter for delimiter in ",;:\t &#/=~"} | {"|": "\\|", "^": "\\^"}
"""Regular expressions of usual delimiters: Java splits by such short ones without its regex engine."""


def rows_at(frame: DataFrame, positions: Collection[str], *, but: bool = False) -> DataFrame:
    """The rows of a frame with `_position` at these positions; or, with `but`, all others."""
    if len(positions) <= _MOST_NAMED:
        chosen = frame[POSITION].isin(sorted(positions))
        return frame.where(~chosen if but else chosen)
    named = frame.sparkSession.createDataFrame(pa.table({POSITION: sorted(positions)}))
    return frame.join(named, POSITION, "left_anti" if but else "left_semi").select(*frame.columns)


def decode_csv(
    records: DataFrame,
    columns: Sequence[str],
    fields: Sequence[pa.Field],
    dialect: CsvDialect,
    passed: Sequence[str] = (),
    *,
    careful: bool = True,
) -> DataFrame:
    """CSV records whose fields are `columns`; those of `fields` are matched by name, ignoring case.

    A record with another number of fields than `columns` is bad, and so is one with an unclosed quote.
    """
    converted = _csv_columns(columns, fields, f"{_PARSED}.c")
    # The parser strips a byte order mark from the first record it sees, so another field is put before it.
    text = f"concat({literal(dialect.delimiter)}, {RECORD})"
    schema = ["c STRING", *(f"c{number} STRING" for number in range(len(columns)))]
    most = {"maxColumns": str(max(_MOST_FIELDS, len(columns)) + 1)}
    parse = _parse("from_csv", text, schema, {**dialect.spark_options, **most}, careful)
    return _select(records, parse, _misread_csv(columns, dialect), converted, _kinds(fields), passed, careful)


def _misread_csv(columns: Sequence[str], dialect: CsvDialect) -> str:
    """SQL: Spark's parser would close a quote by itself, or fail at the number of fields."""
    field = dialect.field_pattern()
    others = f"(?:\\x{{{ord(dialect.delimiter):x}}}{field}){{{len(columns) - 1}}}+"
    asked = f"contains({RECORD}, {literal(dialect.quote)}) OR octet_length({RECORD}) > {_MOST_FIELDS}"
    return f"(({asked}) AND NOT {RECORD} RLIKE {literal(f'^{field}{others}$')})"


def decode_plain_csv(
    records: DataFrame,
    columns: Sequence[str],
    fields: Sequence[pa.Field],
    dialect: CsvDialect,
    passed: Sequence[str] = (),
) -> DataFrame | None:
    """Like `decode_csv`, not careful, for records without quotes: 40 % less work. None if not possible."""
    delimiter = dialect.delimiter
    converted = _csv_columns(columns, fields, "c")
    if delimiter not in _PATTERNS or not any(converted.values()):
        return None
    through = [quote(name) for name in passed]
    divided = records.selectExpr(f"split({RECORD}, {literal(_PATTERNS[delimiter])}) AS {_PARSED}", *through)
    refused = f"raise_error({literal(f'{BAD_ROW}: a record has not {len(columns)} fields')})"
    nulls = ", ".join(literal(text) for text in sorted({"", dialect.null}))
    texts = [
        f"CASE WHEN size({_PARSED}) <> {len(columns)} THEN {refused} "
        f"WHEN get({_PARSED}, {place}) NOT IN ({nulls}) THEN get({_PARSED}, {place}) END AS c{place}"
        for place in sorted(_places(columns, fields).values())
    ]
    values = column_values(converted, _kinds(fields), careful=False)
    return all_looked_at(divided.selectExpr(*texts, *through).selectExpr(*values, *through), list(converted))


def _places(columns: Sequence[str], fields: Sequence[pa.Field]) -> dict[str, int]:
    """The position of each field that is present in a record."""
    places = {name.casefold(): number for number, name in enumerate(columns)}
    return {f.name: places[f.name.casefold()] for f in fields if f.name.casefold() in places}


def _csv_columns(
    columns: Sequence[str], fields: Sequence[pa.Field], prefix: str
) -> dict[str, Converted | None]:
    places = _places(columns, fields)
    return {
        f.name: from_csv_text(f"{prefix}{places[f.name]}", f.type) if f.name in places else None
        for f in fields
    }


def _kinds(fields: Sequence[pa.Field]) -> dict[str, str]:
    return {field.name: spark_name(field.type) for field in fields}


def decode_json(
    records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str] = (), *, careful: bool = True
) -> DataFrame:
    """JSON records, one object each; a blank one is no record."""
    converted = _json_columns(fields, f"{_PARSED}.")
    schema = _json_schema(converted) or ["`` STRING"]
    parse = _parse("from_json", RECORD, schema, _STRICT, careful)
    # The first test decides nearly all of them, at a fraction of the cost.
    present = records.where(f"startswith({RECORD}, '{{') OR {RECORD} RLIKE '\\\\S'")
    return _select(present, parse, half_a_pair_sql(RECORD), converted, _kinds(fields), passed, careful)


def read_json(
    reader: DataFrameReader, paths: list[str], fields: Sequence[pa.Field], passed: Mapping[str, str]
) -> DataFrame | None:
    """Like `decode_json`, not careful, for files in which each record is one object: half the work.

    `passed` is SQL for further columns. None if not possible.
    """
    converted = _json_columns(fields, "")
    if not fields or len({field.name.casefold() for field in fields} | {"_metadata"}) != len(fields) + 1:
        return None
    reader = reader.schema(", ".join(_json_schema(converted)))
    frame = reader.options(mode="FAILFAST", **_STRICT).json(paths)
    values = column_values(converted, _kinds(fields), careful=False)
    further = (f"{sql} AS {quote(name)}" for name, sql in passed.items())
    return all_looked_at(frame.selectExpr(*values, *further), list(converted))


def _json_columns(fields: Sequence[pa.Field], prefix: str) -> dict[str, Converted | None]:
    return {field.name: from_json_value(f"{prefix}{quote(field.name)}", field.type) for field in fields}


def _json_schema(converted: dict[str, Converted | None]) -> list[str]:
    return [f"{quote(name)} {part.parsed_as}" for name, part in converted.items() if part is not None]


def _parse(function: str, text: str, schema: Sequence[str], options: dict[str, str], careful: bool) -> str:
    if careful:
        ddl = ", ".join([*schema, f"{_CORRUPT} STRING"])
        mode = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    else:
        ddl, mode = ", ".join(schema), {"mode": "FAILFAST"}
    return f"{function}({text}, {literal(ddl)}, {option_map({**options, **mode})})"


def _select(
    records: DataFrame,
    parse: str,
    misread: str,
    converted: dict[str, Converted | None],
    kinds: dict[str, str],
    passed: Sequence[str],
    careful: bool,
) -> DataFrame:
    """The columns of parsed records; records that the parser would misread are bad and not given to it."""
    if careful:
        parse = f"CASE WHEN NOT {misread} THEN {parse} END"
    else:
        refused = f"raise_error({literal(f'{BAD_ROW}: a record is doubtful')})"
        records = records.where(f"{RECORD} IS NULL OR NOT {misread} OR {refused}")
    parsed = records.selectExpr(f"{parse} AS {_PARSED}", RECORD, *(quote(name) for name in passed))
    if not careful and not any(converted.values()):
        # No column is taken from the record, so Spark would not evaluate it at all.
        parsed = parsed.where(f"{_PARSED} IS NOT NULL")
    unfit = [part.bad for part in converted.values() if part is not None and part.bad is not None]
    doubts = [misread, f"{_PARSED}.{_CORRUPT} IS NOT NULL", *unfit]
    bad = f"CASE WHEN {' OR '.join(doubts)} THEN {RECORD} END AS {BAD}"
    values = column_values(converted, kinds, careful)
    frame = parsed.selectExpr(*values, *(quote(name) for name in passed), *([bad] if careful else []))
    return frame if careful else all_looked_at(frame, list(converted))


def all_looked_at(frame: Frame, names: Sequence[str], further: Sequence[str] = ()) -> Frame:
    """The frame, with these columns evaluated for every row even where the query uses none of them.

    A row that is bad in one of them is then bad whatever the query does with it, as it is when it is
    retracted: otherwise a bad record would be added and never retracted. The condition is always true, but
    Spark cannot know that; nor does it push a condition below a non-deterministic column, where it would
    compute everything twice. `further` conditions are tested with it.
    """
    if not names and not further:
        return frame
    seen = " AND ".join([*(f"({quote(name)} IS NULL OR {_SEEN} >= 0)" for name in names), *further])
    return frame.selectExpr("*", f"monotonically_increasing_id() AS {_SEEN}").where(seen).drop(_SEEN)


def column_values(
    converted: Mapping[str, Converted | None], kinds: Mapping[str, str], careful: bool
) -> list[str]:
    """SQL for the columns; unless careful, a bad value is an error."""
    values = []
    for name, part in converted.items():
        value = f"CAST(NULL AS {kinds[name]})" if part is None else part.value
        if part is not None and part.bad is not None and not careful:
            value = _or_refused(name, part)
        values.append(f"{value} AS {quote(name)}")
    return values


def _or_refused(name: str, part: Converted) -> str:
    """The value, or an error when it is bad."""
    refused = f"raise_error({literal(f'{BAD_ROW}: a value of column {name} does not fit')})"
    if part.text is not None:
        # In this order the value is computed only once.
        return f"coalesce({part.value}, CASE WHEN {part.text} IS NOT NULL THEN {refused} END)"
    return f"CASE WHEN {part.bad} THEN {refused} ELSE {part.value} END"


def option_map(options: dict[str, str]) -> str:
    """Options of a function, as SQL."""
    return f"map({', '.join(f'{literal(key)}, {literal(value)}' for key, value in options.items())})"
