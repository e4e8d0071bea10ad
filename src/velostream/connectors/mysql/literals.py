"""Values as MySQL reads them: literals of its SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from velostream.formats.json.writer import json_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES = {
    pa.bool_(): "tinyint(1)",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
}
_KEY_CHARACTERS = 255
"""What a text that is part of a key may have at most, in a table that is made: an index has 3072 bytes."""


def type_name(kind: pa.DataType, *, key: bool = False) -> str:
    """The type of a column that is made for values of this type."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "datetime(6)"
    if pa.types.is_string(kind):
        # Texts that differ in case or accents are different keys.
        return f"varchar({_KEY_CHARACTERS}) COLLATE utf8mb4_bin" if key else "longtext"
    if pa.types.is_binary(kind):
        return f"varbinary({_KEY_CHARACTERS})" if key else "longblob"
    return _NAMES.get(kind, "json")


def tuples(rows: pa.Table) -> Iterator[str]:
    """Each row as `(1,'a',NULL)`."""
    columns = [_literals(column.combine_chunks()) for column in rows.columns]
    if not columns:
        return
    made = columns[0]
    for column in columns[1:]:
        made = pc.binary_join_element_wise(made, column, ",")
    for row in made.to_pylist():
        yield f"({row})"


def _literals(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        made = _quoted(column.cast(pa.string()))
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        texts = [None if value is None else f"X'{value.hex()}'" for value in column.to_pylist()]
        made = pa.array(texts, pa.string())
    elif pa.types.is_nested(kind):
        made = _quoted(_json(column))
    elif pa.types.is_boolean(kind):
        made = pc.if_else(column, "1", "0")
    elif pa.types.is_timestamp(kind):
        plain = column.cast(pa.timestamp("us")).cast(pa.string())
        made = pc.binary_join_element_wise("'", plain, "'", "")
    elif pa.types.is_floating(kind):
        made = _numbers(column)
    elif pa.types.is_date(kind):
        made = pc.binary_join_element_wise("'", column.cast(pa.string()), "'", "")
    else:
        made = column.cast(pa.string())
    return made.fill_null("NULL")


def _numbers(column: pa.Array) -> pa.Array:
    """MySQL has no NaN and no infinity: they are quoted, so that the server refuses the row."""
    texts = [None if value is None else repr(value) for value in column.to_pylist()]
    finite = pc.is_finite(column)
    made = pa.array(texts, pa.string())
    if pc.all(finite).as_py() is not False:
        return made
    return pc.if_else(finite, made, pc.binary_join_element_wise("'", made, "'", ""))


def _quoted(texts: pa.Array) -> pa.Array:
    """Texts in quotes; backslashes are doubled, as the session reads them (no NO_BACKSLASH_ESCAPES)."""
    escaped = texts
    for mark, written in (("\\", "\\\\"), ("'", "\\'"), ("\0", "\\0")):
        escaped = pc.replace_substring(escaped, mark, written)
    return pc.binary_join_element_wise("'", escaped, "'", "")


def _json(column: pa.Array) -> pa.Array:
    """Structs, maps and lists as JSON: each as the only field of an object, which is cut off."""
    lines = json_bytes(pa.table({"v": column}))
    texts = [line[len(b'{"v":') : -1].decode() for line in lines]
    valid = column.is_valid().to_pylist()
    return pa.array([text if there else None for text, there in zip(texts, valid, strict=True)], pa.string())
