"""Which of Spark's types a table can hold, and alternatives for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.errors import TypeMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import DataType, StructType

_NOT_READ = {
    "interval year": "write CAST({} AS INT) for its years, or CAST({} AS STRING)",
    "interval year to month": "write CAST({} AS INT) for its months, or CAST({} AS STRING)",
    "interval month": "write CAST({} AS INT) for its months, or CAST({} AS STRING)",
    "interval": "make_dt_interval(…) makes intervals that can be kept; or write CAST({} AS STRING)",
    "variant": "write to_json({}), or variant_get({}, path, type)",
}
"""Types whose values Spark does not return faithfully, by name, with an alternative."""
_NOT_KEPT = {
    **_NOT_READ,
    "time": "write CAST({} AS STRING)",
    "geometry": "write st_asbinary({})",
    "geography": "write st_asbinary({})",
}


def refuse_unread(struct: StructType) -> None:
    """Raise TypeMismatchError for a column whose values cannot be read from Spark."""
    _refuse(struct, _NOT_READ, "Spark does not hand over")
    for field in struct.fields:
        if any(map(_is_empty, _within(field.dataType))):
            raise TypeMismatchError(
                f'column "{field.name}" is an empty array or map of no type, which Spark does not hand over',
                hint=f"say which type it has: CAST({field.name} AS ARRAY<STRING>)",
            )


def refuse_unkept(struct: StructType) -> None:
    """Raise TypeMismatchError for a column that no table can hold."""
    _refuse(struct, _NOT_KEPT, "no table can hold")
    refuse_unread(struct)
    for field in struct.fields:
        for kind in _within(field.dataType):
            names = [name.casefold() for name in getattr(kind, "names", ())]
            if len(set(names)) < len(names):
                raise TypeMismatchError(
                    f'column "{field.name}" is a struct with two fields of one name, which no table can hold',
                    hint="name the fields: named_struct('a', …, 'b', …)",
                )


def collation_of(struct: StructType) -> tuple[str, str] | None:
    """The first column that is not compared by its bytes, and its collation."""
    from pyspark.sql.types import StringType

    for field in struct.fields:
        for kind in _within(field.dataType):
            if isinstance(kind, StringType) and kind.collation != "UTF8_BINARY":
                return field.name, kind.collation
    return None


def _refuse(struct: StructType, unwanted: dict[str, str], why: str) -> None:
    for field in struct.fields:
        for kind in _within(field.dataType):
            name = kind.simpleString()
            hint = unwanted.get(name.partition("(")[0])
            if hint is not None:
                raise TypeMismatchError(
                    f'column "{field.name}" is of type {name.upper()}, which {why}',
                    hint=hint.replace("{}", field.name),
                )


def _is_empty(kind: DataType) -> bool:
    """Whether it is the type of `array()` or `map()`: its elements have no type, and there are none."""
    from pyspark.sql.types import ArrayType, MapType, NullType

    if isinstance(kind, ArrayType):
        return isinstance(kind.elementType, NullType) and not kind.containsNull
    return isinstance(kind, MapType) and isinstance(kind.keyType, NullType)


def _within(kind: DataType) -> Iterator[DataType]:
    """The type and all nested types."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    yield kind
    if isinstance(kind, ArrayType):
        yield from _within(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _within(kind.keyType)
        yield from _within(kind.valueType)
    elif isinstance(kind, StructType):
        for field in kind.fields:
            yield from _within(field.dataType)
