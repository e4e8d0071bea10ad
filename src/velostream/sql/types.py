"""SQL types as Arrow types, and Arrow types as Spark's DDL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from velostream.errors import SqlSyntaxError, TypeMismatchError
from velostream.location import SourceText
from velostream.model.statements import ColumnDef

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TIMESTAMP = pa.timestamp("us", "UTC")
INTERVAL = pa.duration("us")
"""A day-time interval, whatever units it was written with."""
_T = exp.DType
_SIMPLE: dict[exp.DType, pa.DataType] = {
    _T.BOOLEAN: pa.bool_(),
    _T.TINYINT: pa.int8(),
    _T.SMALLINT: pa.int16(),
    _T.INT: pa.int32(),
    _T.BIGINT: pa.int64(),
    _T.FLOAT: pa.float32(),
    _T.DOUBLE: pa.float64(),
    _T.TEXT: pa.string(),
    _T.VARCHAR: pa.string(),
    _T.CHAR: pa.string(),
    _T.BINARY: pa.binary(),
    _T.VARBINARY: pa.binary(),
    _T.DATE: pa.date32(),
    _T.DATE32: pa.date32(),
    _T.TIMESTAMP: TIMESTAMP,
    _T.TIMESTAMPTZ: TIMESTAMP,
    _T.TIMESTAMPLTZ: TIMESTAMP,
    _T.TIMESTAMPNTZ: pa.timestamp("us"),
    _T.DATETIME: TIMESTAMP,
    _T.NULL: pa.null(),
}
_NAMES = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), STRING, BINARY, DATE, TIMESTAMP, "
    "INTERVAL DAY TO SECOND, ARRAY<…>, MAP<…> and STRUCT<…>"
)


def arrow_type(node: exp.DataType) -> pa.DataType:
    """The Arrow type; TypeMismatchError names the valid types."""
    kind = node.this
    if isinstance(kind, exp.Interval) or kind is _T.INTERVAL:
        return _interval(node)
    if kind is _T.TIME:
        raise TypeMismatchError(
            "no table can hold a TIME", hint="write STRING, or BIGINT for the microseconds since midnight"
        )
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind in (_T.DECIMAL, _T.UDECIMAL):
        return _decimal(node)
    if kind is _T.ARRAY and len(node.expressions) == 1:
        return pa.list_(_nested(node.expressions[0]))
    if kind is _T.MAP and len(node.expressions) == 2:
        return pa.map_(_nested(node.expressions[0]), _nested(node.expressions[1]))
    if kind is _T.STRUCT and node.expressions:
        return pa.struct([_field(part) for part in node.expressions])
    if kind in (_T.UUID, _T.JSON, _T.JSONB):
        raise TypeMismatchError(f'type "{kind.value.lower()}" is not known', hint="write STRING")
    raise TypeMismatchError(f'type "{node.sql("spark").lower()}" is not known', hint=f"types are {_NAMES}")


_INTERVAL_UNITS = frozenset({"DAY", "HOUR", "MINUTE", "SECOND"})


def _interval(node: exp.DataType) -> pa.DataType:
    units = {unit.name.upper() for unit in node.find_all(exp.Var)}
    if not units or not units <= _INTERVAL_UNITS:
        raise TypeMismatchError(
            f"no table can hold an {node.sql('spark')}",
            hint="write INTERVAL DAY TO SECOND, or INT for a number of months",
        )
    return INTERVAL


def _nested(node: exp.Expr) -> pa.DataType:
    if isinstance(node, exp.DataType):
        return arrow_type(node)
    raise TypeMismatchError(f'type "{node.sql("spark").lower()}" is not known', hint=f"types are {_NAMES}")


def _field(node: exp.Expr) -> pa.Field:
    if isinstance(node, exp.ColumnDef) and isinstance(node.kind, exp.DataType):
        return pa.field(node.name, arrow_type(node.kind))
    raise TypeMismatchError("a field of a STRUCT is written name: type")


def _decimal(node: exp.DataType) -> pa.DataType:
    sizes = [int(part.name) for part in node.expressions if part.name.isdigit()]
    precision, scale = (*sizes, *(10, 0)[len(sizes) :]) if len(sizes) < 2 else sizes[:2]
    if not 1 <= precision <= 38 or scale > precision:
        raise TypeMismatchError(
            f"decimal({precision}, {scale}) is not possible",
            hint="precision is 1 to 38 and scale at most the precision",
        )
    return pa.decimal128(precision, scale)


_DDL: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_int8, "TINYINT"),
    (pa.types.is_int16, "SMALLINT"),
    (pa.types.is_uint8, "SMALLINT"),
    (pa.types.is_int32, "INT"),
    (pa.types.is_uint16, "INT"),
    (pa.types.is_int64, "BIGINT"),
    (pa.types.is_uint32, "BIGINT"),
    (pa.types.is_uint64, "DECIMAL(20, 0)"),
    (pa.types.is_float32, "FLOAT"),
    (pa.types.is_float64, "DOUBLE"),
    (pa.types.is_string, "STRING"),
    (pa.types.is_large_string, "STRING"),
    (pa.types.is_binary, "BINARY"),
    (pa.types.is_large_binary, "BINARY"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_time, "TIME"),
    (pa.types.is_duration, "INTERVAL DAY TO SECOND"),
    (pa.types.is_null, "VOID"),
)


def spark_ddl(kind: pa.DataType) -> str:
    """The type in Spark's DDL."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    if pa.types.is_map(kind):
        return f"MAP<{spark_ddl(kind.key_type)}, {spark_ddl(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"ARRAY<{spark_ddl(kind.value_type)}>"
    if pa.types.is_struct(kind):
        fields = (f"{quote(field.name)}: {spark_ddl(field.type)}" for field in kind)
        return f"STRUCT<{', '.join(fields)}>"
    if pa.types.is_dictionary(kind):
        return spark_ddl(kind.value_type)
    for matches, name in _DDL:
        if matches(kind):
            return name
    raise TypeMismatchError(f'type "{kind}" has no counterpart in Spark')


def schema_text(schema: pa.Schema) -> str:
    """A schema as readable text; `schema_from_text` is the inverse."""
    return ", ".join(f"`{f.name.replace('`', '``')}` {spark_ddl(f.type)}" for f in schema)


def ddl_types(schemas: Mapping[str, pa.Schema]) -> dict[str, dict[str, str]]:
    """The columns of each relation with their types in Spark's DDL."""
    return {name: {each.name: spark_ddl(each.type) for each in schema} for name, schema in schemas.items()}


def quote(name: str) -> str:
    """An identifier in backticks."""
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    """A text as a Spark SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def parse_columns(text: str) -> tuple[ColumnDef, ...]:
    """Columns as in CREATE: `a int, b decimal(10,2)`; raises SqlError."""
    from velostream.model.statements import ObjectKind
    from velostream.sql.parse.parser import StatementParser, tokenize
    from velostream.sql.text.script import split

    source = SourceText(f"({text})", "<schema>")
    script = split(source, {})
    if script.errors or len(script.pieces) != 1:
        raise script.errors[0] if script.errors else SqlSyntaxError("columns are written name type, …")
    piece = script.pieces[0]
    schema = StatementParser(piece, tokenize(piece)).parse_schema(ObjectKind.TABLE)
    return tuple(
        ColumnDef(column.name.text, arrow_type(column.type), column.primary_key) for column in schema.columns
    )
