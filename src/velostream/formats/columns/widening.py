"""Widening: types that hold further values besides those of the known types."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from velostream.formats.columns.inference import Number, Seen, number_type, wider


def with_room(known: pa.Schema, values: dict[str, Any], *, texts: bool = False) -> pa.Schema:
    """`known` widened for the values of one record, its new columns at the end.

    With `texts`, numbers may be texts, as in CSV, and there are no new columns.
    """
    by_name = {name.casefold(): value for name, value in values.items()}
    fields = [pa.field(f.name, room_for(by_name.get(f.name.casefold()), f.type, texts)) for f in known]
    if not texts:
        taken = {f.name.casefold() for f in known}
        for name, value in values.items():
            if value is not None and name.casefold() not in taken:
                fields.append(pa.field(name, _type_of(value)))
                taken.add(name.casefold())
    return pa.schema(fields)


def room_for(value: Any, kind: pa.DataType, texts: bool = False) -> pa.DataType:
    """A type that holds a value besides all that `kind` holds; `kind` itself where there is none."""
    if value is None:
        return kind
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return pa.struct(list(with_room(pa.schema(list(kind)), value)))
    if pa.types.is_list(kind) and isinstance(value, list):
        item = kind.value_type
        for one in value:
            item = room_for(one, item)
        return pa.list_(item)
    if pa.types.is_date(kind) and isinstance(value, str) and not isinstance(value, Number):
        return wider(kind, _type_of(value))
    asked = number_asked(value, texts)
    if asked is None or (pa.types.is_integer(kind) and _holds(value, kind)):
        return kind
    return wider(kind, asked)


def number_asked(value: Any, texts: bool) -> pa.DataType | None:
    """The smallest type for a number; None for anything else."""
    if value is None or isinstance(value, bool | dict | list):
        return None
    if not texts and isinstance(value, str) and not isinstance(value, Number):
        return None
    return number_type(str(value))


def _holds(value: Any, kind: pa.DataType) -> bool:
    """Whether the type can hold the number as an integer: one bad neighbour does not widen it."""
    number = Decimal(str(value).strip())
    most = 1 << (kind.bit_width - 1)
    return number == number.to_integral_value() and -most <= number < most


def _type_of(value: Any) -> pa.DataType:
    seen = Seen()
    seen.add_json(value)
    return seen.type()
