"""Arrow types by their names in Spark SQL, as used in declarations of columns."""

from __future__ import annotations

import pyarrow as pa

from velostream.errors import SourceConfigError
from velostream.sql.types import quote

_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.large_string(): "STRING",
    pa.binary(): "BINARY",
    pa.large_binary(): "BINARY",
    pa.date32(): "DATE",
    pa.null(): "STRING",
    pa.duration("us"): "INTERVAL DAY TO SECOND",
}


def spark_name(kind: pa.DataType) -> str:
    """The type's name in Spark SQL; SourceConfigError when Spark has none."""
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"ARRAY<{spark_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{spark_name(kind.key_type)}, {spark_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        fields = (f"{quote(field.name)}: {spark_name(field.type)}" for field in kind)
        return f"STRUCT<{', '.join(fields)}>"
    raise SourceConfigError(f"Spark has no type for {kind}")
