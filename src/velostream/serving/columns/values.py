"""Conversion of values between Arrow columns and Python.

Columns are converted whole, from their buffers: a timestamp costs about 0.2 µs that way and 8-15 µs through
`to_pylist`. There are two forms: *readable* values, which readers see (Decimal, aware datetime, ...), and
*canonical* values, which are hashable and equal exactly when SQL's grouping calls two values equal (NaN =
NaN, -0.0 = 0.0, maps without order, null = null).
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from itertools import repeat
from sys import intern
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from velostream.errors import TableError
from velostream.model.columns import KEY, MESSAGE_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

EXACT: Final = Context(prec=80)
"""Decimal arithmetic that never rounds a value of at most 76 digits."""

_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class _Symbol:
    """A value that equals only itself."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


NAN: Final = _Symbol("NaN")
"""Canonical form of every NaN."""
NO_MATCH: Final = _Symbol("no match")
"""Canonical form of a value that the column's type cannot hold, so that no row has it."""


def decoded(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array without chunks, dictionaries or views."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        if isinstance(array, pa.ChunkedArray):  # more than 2 GiB of text does not fit in one array
            array = pa.concat_arrays([chunk.cast(_large(chunk.type)) for chunk in array.chunks])
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    if pa.types.is_string_view(array.type):
        return array.cast(pa.string())
    if pa.types.is_binary_view(array.type):
        return array.cast(pa.binary())
    if pa.types.is_decimal32(array.type) or pa.types.is_decimal64(array.type):
        return array.cast(pa.decimal128(array.type.precision, array.type.scale))
    return array


def _large(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(kind) else kind


# --- readable ---------------------------------------------------------------------------------------


def to_python(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values that readers see, one per row, None for null."""
    if pa.types.is_dictionary(array.type):
        pieces = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        return [text for piece in pieces for text in _coded_texts(piece)]
    array = decoded(array)
    kind = array.type
    if pa.types.is_decimal128(kind):
        return _decimals(array)
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return _with_nulls(array, _integers(array), _timestamp_reader(kind))
    if pa.types.is_date32(kind):
        return _with_nulls(array, _integers(array), _day)
    if pa.types.is_nested(kind):
        return [_readable(value, kind) for value in array.to_pylist(maps_as_pydicts=None)]
    return _plain(array)


def _coded_texts(array: pa.DictionaryArray) -> list[str | None]:
    codes, texts = array.indices, array.dictionary
    if len(texts) > len(codes):
        # Only the texts that occur.
        used = codes.dictionary_encode()
        codes, texts = used.indices, texts.take(used.dictionary)
    shared: list[str | None] = [*map(intern, texts.to_pylist()), None]
    if codes.null_count:
        codes = codes.cast(pa.int32()).fill_null(len(shared) - 1)
    return list(map(shared.__getitem__, codes.to_numpy(zero_copy_only=False).tolist()))


def _decimals(array: pa.Array) -> list[Any]:
    values = unscaled(array)
    exponent = -array.type.scale
    # Without a Python frame per value: half the time.
    made: list[Any] = list(map(EXACT.scaleb, values, repeat(exponent)) if exponent else map(Decimal, values))
    if array.null_count:
        for place in np.flatnonzero(np.asarray(array.is_null())).tolist():
            made[place] = None
    return made


def _timestamp_reader(kind: pa.DataType) -> Callable[[int], datetime]:
    epoch = _EPOCH if kind.tz is None else _EPOCH_UTC
    micros = 1_000_000 // _PER_SECOND[kind.unit]

    def read(value: int) -> datetime:
        return epoch + timedelta(microseconds=value * micros)

    return read


def _day(value: int) -> date:
    return date.fromordinal(value + _EPOCH_DAY)


def _readable(value: Any, kind: pa.DataType) -> Any:
    """Nested values: struct as dict, map as dict, list as list; times always in UTC."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _readable(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {freeze(_readable(key, kind.key_type)): _readable(item, kind.item_type) for key, item in value}
    if pa.types.is_nested(kind):
        return [_readable(item, kind.value_type) for item in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def _plain(array: pa.Array) -> list[Any]:
    kind = array.type
    if array.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return list(array.to_numpy(zero_copy_only=False).tolist())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return list(array.to_numpy(zero_copy_only=False).tolist())
    return list(array.to_pylist())


def _integers(array: pa.Array) -> list[int]:
    """The integers behind a date, time or timestamp; arbitrary where null."""
    width = array.type.bit_width
    return list(np.asarray(array.view(pa.int32() if width == 32 else pa.int64()).fill_null(0)).tolist())


def _with_nulls(array: pa.Array, raw: list[int], convert: Callable[[int], Any]) -> list[Any]:
    if array.null_count == 0:
        return [convert(value) for value in raw]
    valid = array.is_valid().to_numpy(zero_copy_only=False).tolist()
    return [convert(value) if there else None for value, there in zip(raw, valid, strict=True)]


def unscaled(array: pa.Array) -> list[int]:
    """The unscaled integers of a decimal128 array; arbitrary where null."""
    halves = np.frombuffer(array.buffers()[1], dtype=np.int64)
    start = 2 * array.offset
    low, high = halves[start : start + 2 * len(array) : 2], halves[start + 1 : start + 2 * len(array) : 2]
    if bool(np.all((low >> 63) == high)):
        return list(low.tolist())
    pairs = zip(low.view(np.uint64).tolist(), high.tolist(), strict=True)
    return [(upper << 64) | lower for lower, upper in pairs]


def small_integers(array: pa.Array) -> npt.NDArray[np.int64] | None:
    """Integers, or the unscaled integers of decimals, in 64 bits; arbitrary where null, None if too large."""
    if pa.types.is_integer(array.type):
        return np.asarray(array.fill_null(0)).astype(np.int64)
    halves = np.frombuffer(array.buffers()[1], dtype=np.int64)
    halves = halves[2 * array.offset : 2 * (array.offset + len(array))]
    low, high = halves[::2], halves[1::2]
    fits = (low >> 63) == high
    if array.null_count:
        fits |= np.asarray(array.is_null())
    return np.ascontiguousarray(low) if bool(fits.all()) else None


# --- canonical --------------------------------------------------------------------------------------


def canonical(array: pa.Array | pa.ChunkedArray) -> list[Hashable]:
    """Hashable values that are equal exactly when SQL groups the rows together."""
    array = decoded(array)
    kind = array.type
    if pa.types.is_decimal128(kind):
        return _raw_with_nulls(array, unscaled(array))
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return _raw_with_nulls(array, _integers(array))
    if pa.types.is_floating(kind):
        values = _plain(array)
        if pc.any(pc.is_nan(array)).as_py():
            return [NAN if value != value else value for value in values]
        return values
    if pa.types.is_nested(kind):
        return [freeze(value) for value in array.to_pylist(maps_as_pydicts="strict")]
    return _plain(array)


def _raw_with_nulls(array: pa.Array, raw: list[int]) -> list[Hashable]:
    if array.null_count == 0:
        return list(raw)
    valid = array.is_valid().to_numpy(zero_copy_only=False).tolist()
    return [value if there else None for value, there in zip(raw, valid, strict=True)]


def freeze(value: Any) -> Hashable:
    """A nested value in hashable form: lists as tuples, dicts as sets of pairs, NaN as one value."""
    if isinstance(value, dict):
        return frozenset((freeze(key), freeze(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    if isinstance(value, float) and value != value:
        return NAN
    return value  # type: ignore[no-any-return]


def encoder(field: pa.Field) -> Callable[[Any], Hashable]:
    """A function from one Python value to the canonical form that `canonical` gives for the column."""
    kind = field.type
    if pa.types.is_decimal128(kind):
        return _decimal_encoder(field)
    if pa.types.is_timestamp(kind):
        return _timestamp_encoder(field)
    if pa.types.is_date32(kind):
        return _date_encoder(field)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return lambda value: bytes(value) if isinstance(value, bytearray | memoryview) else value
    if pa.types.is_nested(kind) or pa.types.is_floating(kind):
        return freeze
    return lambda value: value


def encodes_itself(field: pa.Field) -> bool:
    """Whether the canonical form of a key value is the value, so that lookups need not convert it."""
    kind = field.type
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind))


def _refuse(field: pa.Field, value: Any, wanted: str) -> TableError:
    return TableError(
        f'column "{field.name}" is {field.type} and cannot be looked up by {type(value).__name__} {value!r}',
        hint=f"pass {wanted}",
    )


def _decimal_encoder(field: pa.Field) -> Callable[[Any], Hashable]:
    scale = field.type.scale

    def encode(value: Any) -> Hashable:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise _refuse(field, value, "a Decimal or an int")
        exact = Decimal(value)
        if not exact.is_finite():
            return NO_MATCH
        shifted = exact.scaleb(scale, EXACT)
        return int(shifted) if shifted == shifted.to_integral_value() else NO_MATCH

    return encode


def _timestamp_encoder(field: pa.Field) -> Callable[[Any], Hashable]:
    per_second = _PER_SECOND[field.type.unit]

    def encode(value: Any) -> Hashable:
        if value is None:
            return None
        if not isinstance(value, datetime):
            raise _refuse(field, value, "a datetime; one without a zone counts as UTC")
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        micros = (aware - _EPOCH_UTC) // timedelta(microseconds=1)
        units, rest = divmod(micros * per_second, 1_000_000)
        return units if rest == 0 else NO_MATCH

    return encode


def _date_encoder(field: pa.Field) -> Callable[[Any], Hashable]:
    def encode(value: Any) -> Hashable:
        if value is None:
            return None
        if isinstance(value, datetime) or not isinstance(value, date):
            raise _refuse(field, value, "a date")
        return value.toordinal() - _EPOCH_DAY

    return encode


class KeyCodec:
    """Encodes key columns, or key values given by a caller, as the hashable that the key index holds."""

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        self.columns = tuple(key)
        self._encoders = [encoder(schema.field(name)) for name in self.columns]
        self.plain = all(encodes_itself(schema.field(name)) for name in self.columns)
        """Whether the canonical key equals the key as a caller writes it; a tuple for several columns."""
        self.alone = self.plain and len(self.columns) == 1
        """Whether that is a single value."""

    def encode(self, values: Sequence[Any]) -> Hashable:
        """The key of one row from its key values, in the order of the key columns."""
        if len(values) != len(self.columns):
            names = ", ".join(KEY if name == MESSAGE_KEY else name for name in self.columns)
            raise TableError(f"the key has {len(self.columns)} columns ({names}), {len(values)} values given")
        if len(self._encoders) == 1:
            return self._encoders[0](values[0])
        return tuple(encode(value) for encode, value in zip(self._encoders, values, strict=True))

    def encode_columns(self, rows: pa.Table | pa.RecordBatch) -> list[Hashable]:
        """The keys of all rows."""
        columns = [canonical(rows.column(name)) for name in self.columns]
        if len(columns) == 1:
            return columns[0]
        return list(zip(*columns, strict=True))
