"""Stored values of row events as Arrow columns: the same values that a load gives of the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from velostream.connectors.mysql.client.packets import ROOM, gathered, little
from velostream.connectors.mysql.client.types import UTC_TIME, arrow_of
from velostream.connectors.mysql.read.binlog import table_maps as t
from velostream.connectors.mysql.read.binlog.json_values import json_texts
from velostream.connectors.mysql.read.binlog.row_events import width
from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from velostream.connectors.mysql.read.binlog.row_events import Places
    from velostream.connectors.mysql.read.binlog.table_maps import Stored
    from velostream.connectors.mysql.read.binlog.texts import Texts

    Integers = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]
    Flags = npt.NDArray[np.bool_]

_INTEGERS = {
    t.TINY: "tinyint",
    t.SHORT: "smallint",
    t.INT24: "mediumint",
    t.LONG: "int",
    t.LONGLONG: "bigint",
}
_TIMES = {t.TIMESTAMP: 4, t.DATETIME: 5, t.TIME: 3}
_BINARY = 63
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_SMALL_DECIMAL = 18
"""Digits that a number of 64 bits holds."""


@dataclass(frozen=True)
class Values:
    """A column; values that do not fit are null, and told in `bad` as text, by their row."""

    column: pa.Array
    bad: dict[int, str]


def arrow_type(column: Stored, kind: str | None = None) -> pa.DataType:
    """What the values of a column are here; `kind` is its type as the catalogue calls it, if it is known."""
    code = column.code
    if code in _INTEGERS:
        return arrow_of(_INTEGERS[code], unsigned=column.unsigned)
    if code == t.DECIMAL:
        return arrow_of("decimal", precision=column.size, scale=column.scale)
    if code == t.BIT:
        return arrow_of("bit", precision=column.scale)
    if code in (t.STRING, t.VARCHAR, t.VAR_STRING, t.BLOB) and column.collation == _BINARY:
        return arrow_of(kind or "blob")
    return _ARROW.get(code, pa.string())


_ARROW = {
    t.YEAR: pa.int32(),
    t.FLOAT: pa.float32(),
    t.DOUBLE: pa.float64(),
    t.DATE: pa.date32(),
    **dict.fromkeys((t.TIMESTAMP, t.DATETIME, t.OLD_TIMESTAMP, t.OLD_DATETIME), UTC_TIME),
    **dict.fromkeys((t.GEOMETRY, t.VECTOR), pa.binary()),
}


def read_values(data: Bytes, column: Stored, places: Places, texts: Texts, kind: str | None) -> Values:
    """The values of a column. `texts` knows the character sets."""
    code, starts, valid = column.code, places.starts, places.valid
    # Where a value is null there are no bytes: what is read for it, perhaps after the last row, is ignored.
    starts = np.minimum(starts, len(data) - ROOM)
    if code in (t.BLOB_COMPRESSED, t.VARCHAR_COMPRESSED):
        raise SourceConfigError(
            f'column "{column.name}" is COMPRESSED, and cannot be followed in the binlog',
            hint='ALTER TABLE … MODIFY it without COMPRESSED; or poll: "poll.interval" in place of "cdc"',
        )
    if code in _PLAIN:
        return Values(_PLAIN[code](data, starts, valid, column), {})
    if code == t.DECIMAL:
        return _decimals(data, starts, valid, column)
    if code in _CALENDAR:
        return _CALENDAR[code](data, starts, valid, column)
    if code in (t.ENUM, t.SET):
        words = _enums if code == t.ENUM else _sets
        return Values(words(data, starts, valid, column, texts), {})
    found = gathered(data, places.starts, places.lengths, valid)
    if code == t.JSON:
        return Values(json_texts(found), {})
    if code in (t.GEOMETRY, t.VECTOR):
        return Values(found, {})
    return Values(texts.characters(column, found, kind), {})


def _masked(values: npt.NDArray[np.generic], valid: Flags) -> pa.Array:
    return pa.array(values, mask=None if valid.all() else ~valid)


def _integers(data: Bytes, starts: Integers, valid: Flags, column: Stored) -> pa.Array:
    size, target = column.size, arrow_of(_INTEGERS[column.code], unsigned=column.unsigned)
    made = little(data, starts, size)
    if column.unsigned:
        if size == 8:
            return _wide_decimals(made.view(np.uint64), np.zeros(len(made), dtype=bool), valid, target)
    elif size < 8:
        half = 1 << (8 * size - 1)
        made = (made ^ half) - half
    return _masked(made.astype(target.to_pandas_dtype()), valid)


def _years(data: Bytes, starts: Integers, valid: Flags, column: Stored) -> pa.Array:
    years = little(data, starts, 1)
    return _masked(np.where(years > 0, years + 1900, 0).astype(np.int32), valid)


def _floats(data: Bytes, starts: Integers, valid: Flags, column: Stored) -> pa.Array:
    size, kind = (4, "<f4") if column.code == t.FLOAT else (8, "<f8")
    cells = data[starts[:, None] + np.arange(size)]
    return _masked(np.ascontiguousarray(cells).view(kind)[:, 0], valid)


def _bits(data: Bytes, starts: Integers, valid: Flags, column: Stored) -> pa.Array:
    made = _big(data, starts, column.size)
    target = arrow_of("bit", precision=column.scale)
    if target == pa.bool_():
        return _masked(made != 0, valid)
    if pa.types.is_decimal(target):
        return _wide_decimals(made.view(np.uint64), np.zeros(len(made), dtype=bool), valid, target)
    return _masked(made, valid)


def _big(data: Bytes, starts: Integers, size: int) -> Integers:
    """Unsigned numbers of some bytes, the highest first."""
    made = np.zeros(len(starts), dtype=np.int64)
    for place in range(size):
        made = (made << 8) | data[starts + place]
    return made


def _wide_decimals(
    digits: npt.NDArray[np.uint64], negative: Flags, valid: Flags, target: pa.DataType
) -> pa.Array:
    """Decimals whose digits are numbers of 64 bits: each takes two of them, the lower first."""
    words = np.zeros((len(digits), 2), dtype=np.uint64)
    words[:, 0] = np.where(negative, np.uint64(0) - digits, digits)
    words[:, 1] = np.where(negative & (digits > 0), np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0))
    nulls = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(target, len(digits), [nulls, pa.py_buffer(words)])


def _decimals(data: Bytes, starts: Integers, valid: Flags, column: Stored) -> Values:
    """Nine digits take four bytes. The first bit is set, or, of a negative number, all are inverted."""
    precision, scale = column.size, column.scale
    target = arrow_of("decimal", precision=precision, scale=scale)
    size = width(column)
    cells = data[starts[:, None] + np.arange(size)]
    negative = cells[:, 0] & 0x80 == 0
    cells[:, 0] ^= 0x80
    cells[negative] ^= 0xFF
    groups = []
    """Numbers of some digits, the highest first."""
    at = 0
    for digits in _groups(precision - scale, scale):
        count = _bytes(digits)
        groups.append((_big_cells(cells[:, at : at + count]), digits))
        at += count
    if precision <= _SMALL_DECIMAL:
        whole = np.zeros(len(starts), dtype=np.int64)
        for number, digits in groups:
            whole = whole * 10**digits + number
        return Values(_wide_decimals(whole.view(np.uint64), negative, valid, target), {})
    return _long_decimals(groups, negative, valid, target)


def _long_decimals(
    groups: list[tuple[Integers, int]], negative: Flags, valid: Flags, target: pa.DataType
) -> Values:
    made: list[Decimal | None] = []
    bad: dict[int, str] = {}
    lists = [number.tolist() for number, _ in groups]
    most = 10**target.precision
    for row, (minus, there) in enumerate(zip(negative.tolist(), valid.tolist(), strict=True)):
        if not there:
            made.append(None)
            continue
        whole = 0
        for (_, digits), numbers in zip(groups, lists, strict=True):
            whole = whole * 10**digits + numbers[row]
        value = Decimal((int(minus), tuple(map(int, str(whole))), -target.scale))
        if whole >= most:
            bad[row] = str(value)
            made.append(None)
        else:
            made.append(value)
    return Values(pa.array(made, target), bad)


def _groups(whole: int, part: int) -> list[int]:
    """How many digits each group of bytes holds."""
    made = [whole % 9] if whole % 9 else []
    made += [9] * (whole // 9)
    made += [9] * (part // 9)
    return [*made, part % 9] if part % 9 else made


def _bytes(digits: int) -> int:
    """The bytes that up to nine digits take."""
    return (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[digits]


def _big_cells(cells: Bytes) -> Integers:
    made = np.zeros(len(cells), dtype=np.int64)
    for place in range(cells.shape[1]):
        made = (made << 8) | cells[:, place]
    return made


# --- dates and times ----------------------------------------------------------------------------------------


def _fraction(data: Bytes, starts: Integers, column: Stored) -> Integers:
    """Microseconds after the second."""
    size = (column.scale + 1) // 2
    found = _big(data, starts + _TIMES[column.code], size)
    micros: Integers = found * 10 ** (6 - 2 * size)
    return micros


def _days(year: Integers, month: Integers, day: Integers) -> tuple[Integers, Flags]:
    """Days since 1970, and which of them are no days of the calendar."""
    months = (year - 1970) * 12 + np.clip(month, 1, 12) - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]")
    made = first + (day - 1)
    wrong = (year < 1) | (month < 1) | (month > 12) | (day < 1)
    wrong |= made.astype("datetime64[M]") != first.astype("datetime64[M]")
    days: Integers = made.astype(np.int64)
    return days, wrong


def _dates(data: Bytes, starts: Integers, valid: Flags, column: Stored) -> Values:
    packed = little(data, starts, 3)
    year, month, day = packed >> 9, packed >> 5 & 15, packed & 31
    days, wrong = _days(year, month, day)
    wrong &= valid
    bad = {int(row): f"{year[row]:04d}-{month[row]:02d}-{day[row]:02d}" for row in np.flatnonzero(wrong)}
    made = _masked(days.astype(np.int32), valid & ~wrong).cast(pa.date32())
    return Values(made, bad)


def _datetimes(data: Bytes, starts: Integers, valid: Flags, column: Stored) -> Values:
    if column.code == t.DATETIME:
        packed = _big(data, starts, 5) - (1 << 39)
        months, micros = packed >> 22, _fraction(data, starts, column)
        year, month, day = months // 13, months % 13, packed >> 17 & 31
        hour, minute, second = packed >> 12 & 31, packed >> 6 & 63, packed & 63
    else:
        packed = little(data, starts, 8)
        date, time = packed // 1_000_000, packed % 1_000_000
        year, month, day = date // 10_000, date // 100 % 100, date % 100
        hour, minute, second = time // 10_000, time // 100 % 100, time % 100
        micros = np.zeros(len(starts), dtype=np.int64)
    days, wrong = _days(year, month, day)
    wrong &= valid
    made = days * _DAY + (hour * 3600 + minute * 60 + second) * _SECOND + micros
    bad = {
        int(row): f"{year[row]:04d}-{month[row]:02d}-{day[row]:02d} "
        f"{hour[row]:02d}:{minute[row]:02d}:{second[row]:02d}"
        for row in np.flatnonzero(wrong)
    }
    return Values(_masked(made, valid & ~wrong).cast(UTC_TIME), bad)


def _moments(data: Bytes, starts: Integers, valid: Flags, column: Stored) -> Values:
    if column.code == t.TIMESTAMP:
        seconds, micros = _big(data, starts, 4), _fraction(data, starts, column)
    else:
        seconds, micros = little(data, starts, 4), np.zeros(len(starts), dtype=np.int64)
    none = (seconds == 0) & (micros == 0) & valid
    bad = {int(row): "0000-00-00 00:00:00" for row in np.flatnonzero(none)}
    return Values(_masked(seconds * _SECOND + micros, valid & ~none).cast(UTC_TIME), bad)


_CALENDAR: dict[int, Callable[[Bytes, Integers, Flags, Stored], Values]] = {
    t.DATE: _dates,
    t.DATETIME: _datetimes,
    t.OLD_DATETIME: _datetimes,
    t.TIMESTAMP: _moments,
    t.OLD_TIMESTAMP: _moments,
}


def _times_of_day(data: Bytes, starts: Integers, valid: Flags, column: Stored) -> pa.Array:
    """`-838:59:59.000000`, as the server writes it."""
    if column.code == t.TIME:
        size = (column.scale + 1) // 2
        packed = _big(data, starts, 3 + size) - (1 << (23 + 8 * size))
        minus, packed = packed < 0, np.abs(packed)
        whole, micros = packed >> 8 * size, (packed & ((1 << 8 * size) - 1)) * 10 ** (6 - 2 * size)
        hour, minute, second = whole >> 12 & 1023, whole >> 6 & 63, whole & 63
    else:
        packed = little(data, starts, 3)
        packed = (packed ^ (1 << 23)) - (1 << 23)
        minus, packed = packed < 0, np.abs(packed)
        hour, minute, second = packed // 10_000, packed // 100 % 100, packed % 100
        micros = np.zeros(len(starts), dtype=np.int64)
    digits = column.scale if column.code == t.TIME else 0
    made = [
        None
        if not there
        else f"{'-' if sign else ''}{h:02d}:{m:02d}:{s:02d}" + (f".{us:06d}"[: digits + 1] if digits else "")
        for there, sign, h, m, s, us in zip(
            *(each.tolist() for each in (valid, minus, hour, minute, second, micros)), strict=True
        )
    ]
    return pa.array(made, pa.string())


_PLAIN: dict[int, Callable[[Bytes, Integers, Flags, Stored], pa.Array]] = {
    **dict.fromkeys(_INTEGERS, _integers),
    t.YEAR: _years,
    t.FLOAT: _floats,
    t.DOUBLE: _floats,
    t.BIT: _bits,
    t.TIME: _times_of_day,
    t.OLD_TIME: _times_of_day,
}
"""Types of which every value fits."""


# --- words --------------------------------------------------------------------------------------------------


def _enums(data: Bytes, starts: Integers, valid: Flags, column: Stored, texts: Texts) -> pa.Array:
    """Words by their number, counted from 1; 0 is the empty word of a value that was wrong."""
    words = pa.array(["", *texts.words(column)], pa.string())
    numbers = little(data, starts, column.size)
    return words.take(pa.array(np.where(valid, numbers, 0), mask=~valid))


def _sets(data: Bytes, starts: Integers, valid: Flags, column: Stored, texts: Texts) -> pa.Array:
    words = texts.words(column)
    masks = little(data, starts, column.size)
    different, which = np.unique(np.where(valid, masks, 0), return_inverse=True)
    made = [
        ",".join(word for place, word in enumerate(words) if int(mask) >> place & 1) for mask in different
    ]
    return pa.array(made, pa.string()).take(pa.array(which, mask=~valid))
