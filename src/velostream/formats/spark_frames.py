"""DataFrames of records to DataFrames of columns.

A frame of records has a string column `record` and any further columns, which are passed through. The result
has the asked columns and those further ones. A `careful` one also has `_bad`: the record when it could not be
decoded, else NULL; the other one fails in Spark at the first such record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.formats.conversion import Converted, from_csv_text, from_json_value
from velostream.formats.spark_types import literal, quoted, spark_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from velostream.formats.csv_text import CsvDialect

RECORD = "record"
BAD = "_bad"
BAD_ROW = "VELOSTREAM_BAD_ROW"
"""Begins the message of the Spark error that a value causes in a frame that is not careful."""
_CORRUPT = "__corrupt"
_PARSED = "__parsed"


def decode_csv(
    records: DataFrame,
    columns: Sequence[str],
    fields: Sequence[pa.Field],
    dialect: CsvDialect,
    passed: Sequence[str] = (),
    *,
    careful: bool = True,
) -> DataFrame:
    """CSV records whose fields are `columns`; those of `fields` are matched by name, in any case.

    A record with more or fewer fields than `columns` is bad.
    """
    places = {name.casefold(): number for number, name in enumerate(columns)}
    converted: dict[str, Converted | None] = {}
    kinds: dict[str, str] = {}
    for field in fields:
        place = places.get(field.name.casefold())
        kinds[field.name] = spark_name(field.type)
        converted[field.name] = None if place is None else from_csv_text(f"{_PARSED}.c{place}", field.type)
    schema = [f"c{number} STRING" for number in range(len(columns))]
    parse = _parse("from_csv", schema, dialect.spark_options, careful)
    return _select(records, parse, converted, kinds, passed, careful)


def decode_json(
    records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str] = (), *, careful: bool = True
) -> DataFrame:
    """JSON records, one object each; a blank one is no record."""
    converted = {
        field.name: from_json_value(f"{_PARSED}.{quoted(field.name)}", field.type) for field in fields
    }
    schema = [f"{quoted(name)} {part.parsed_as}" for name, part in converted.items()] or ["`` STRING"]
    parse = _parse("from_json", schema, {}, careful)
    kinds = {field.name: spark_name(field.type) for field in fields}
    return _select(records.where(f"{RECORD} RLIKE '\\\\S'"), parse, dict(converted), kinds, passed, careful)


def _parse(function: str, schema: Sequence[str], options: dict[str, str], careful: bool) -> str:
    if careful:
        ddl = ", ".join([*schema, f"{_CORRUPT} STRING"])
        mode = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    else:
        ddl, mode = ", ".join(schema), {"mode": "FAILFAST"}
    return f"{function}({RECORD}, {literal(ddl)}, {_map({**options, **mode})})"


def _select(
    records: DataFrame,
    parse: str,
    converted: dict[str, Converted | None],
    kinds: dict[str, str],
    passed: Sequence[str],
    careful: bool,
) -> DataFrame:
    parsed = records.selectExpr(f"{parse} AS {_PARSED}", RECORD, *(quoted(name) for name in passed))
    if not careful and not any(converted.values()):
        # No column is taken from the record, so nothing else would make Spark look at it.
        parsed = parsed.where(f"{_PARSED} IS NOT NULL")
    doubts = [f"{_PARSED}.{_CORRUPT} IS NOT NULL"]
    values = []
    for name, part in converted.items():
        value = f"CAST(NULL AS {kinds[name]})" if part is None else part.value
        if part is not None and part.bad is not None:
            doubts.append(part.bad)
            if not careful:
                value = _or_refused(name, part)
        values.append(f"{value} AS {quoted(name)}")
    bad = f"CASE WHEN {' OR '.join(doubts)} THEN {RECORD} END AS {BAD}"
    return parsed.selectExpr(*values, *(quoted(name) for name in passed), *([bad] if careful else []))


def _or_refused(name: str, part: Converted) -> str:
    """The value, or an error when it is bad."""
    refused = f"raise_error({literal(f'{BAD_ROW}: a value of column {name} does not fit')})"
    if part.text is not None:
        # Asked this way round, the value is computed only once.
        return f"coalesce({part.value}, CASE WHEN {part.text} IS NOT NULL THEN {refused} END)"
    return f"CASE WHEN {part.bad} THEN {refused} ELSE {part.value} END"


def _map(options: dict[str, str]) -> str:
    return f"map({', '.join(f'{literal(key)}, {literal(value)}' for key, value in options.items())})"
