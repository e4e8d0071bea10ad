"""Table maps of a binlog: which columns the row events that follow have, and how they are stored.

With `binlog_row_metadata = FULL` they have the names, signs, character sets and words of enums, as they were
when the rows were written; nothing has to be asked for that may have changed since.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

TINY, SHORT, LONG, FLOAT, DOUBLE = 1, 2, 3, 4, 5
OLD_TIMESTAMP, LONGLONG, INT24, DATE, OLD_TIME, OLD_DATETIME, YEAR = 7, 8, 9, 10, 11, 12, 13
VARCHAR, BIT, TIMESTAMP, DATETIME, TIME = 15, 16, 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
VECTOR, JSON, DECIMAL, ENUM, SET = 242, 245, 246, 247, 248
BLOB, VAR_STRING, STRING, GEOMETRY = 252, 253, 254, 255

_NUMBERS = frozenset({TINY, SHORT, INT24, LONG, LONGLONG, DECIMAL, FLOAT, DOUBLE})
_CHARACTERS = frozenset({STRING, VAR_STRING, VARCHAR, BLOB, BLOB_COMPRESSED, VARCHAR_COMPRESSED})
_ONE_BYTE = frozenset(
    {FLOAT, DOUBLE, BLOB, GEOMETRY, JSON, TIMESTAMP, DATETIME, TIME, BLOB_COMPRESSED, VECTOR}
)
_TWO_BYTES = frozenset({VARCHAR, BIT, DECIMAL, STRING, VAR_STRING, ENUM, SET, VARCHAR_COMPRESSED})
_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _NAMES, _SET_WORDS, _ENUM_WORDS = 1, 2, 3, 4, 5, 6
_DEFAULT_ENUM_CHARSET, _ENUM_CHARSET = 10, 11
_HIDDEN = ("!hidden!", "DB_ROW_HASH_")
"""How columns are called that the server keeps for itself."""


@dataclass(frozen=True)
class Stored:
    """A column as its values are stored in row events."""

    name: str
    code: int
    """The type; ENUM and SET are told apart from other strings."""
    size: int
    """The bytes of a value, or those of its length where that varies; the precision of a DECIMAL."""
    scale: int = 0
    """The digits of a DECIMAL after the point, of a time after the second; the bits of a BIT."""
    unsigned: bool = False
    collation: int = 0
    words: tuple[bytes, ...] = field(default=(), repr=False)
    """Of an ENUM or a SET."""

    @property
    def hidden(self) -> bool:
        """Whether it is a column of the server's own, which no table shows."""
        return self.name.startswith(_HIDDEN)


@dataclass(frozen=True)
class TableMap:
    """The columns of a table, in the order of their values."""

    schema: str
    table: str
    columns: tuple[Stored, ...]


def named(event: bytes) -> tuple[str, str]:
    """The schema and the table of a table map's event."""
    size = event[27]
    schema = event[28 : 28 + size].decode()
    at = 29 + size
    return schema, event[at + 1 : at + 1 + event[at]].decode()


def table_map(event: bytes, *, mariadb: bool) -> TableMap:
    """Read an event of type 19, with its header."""
    schema, table = named(event)
    at = 28 + event[27] + 1
    at += 1 + event[at] + 1
    count, at = packed_integer(event, at)
    codes = event[at : at + count]
    at += count
    size, at = packed_integer(event, at)
    columns = list(_stored(codes, event[at : at + size]))
    at += size + (count + 7) // 8
    _describe(columns, event, at, mariadb=mariadb)
    return TableMap(schema, table, tuple(columns))


def packed_integer(data: bytes, at: int) -> tuple[int, int]:
    """A length-encoded integer, and the place after it."""
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width


def _stored(codes: bytes, meta: bytes) -> Iterator[Stored]:
    """The columns without what FULL metadata adds."""
    at = 0
    for code in codes:
        if code in _ONE_BYTE:
            yield _of_one_byte(code, meta[at])
            at += 1
        elif code in _TWO_BYTES:
            yield _of_two_bytes(code, meta[at], meta[at + 1])
            at += 2
        else:
            yield Stored("", code, _FIXED.get(code, 0))


_FIXED = {
    TINY: 1,
    SHORT: 2,
    INT24: 3,
    LONG: 4,
    LONGLONG: 8,
    YEAR: 1,
    DATE: 3,
    OLD_TIMESTAMP: 4,
    OLD_TIME: 3,
    OLD_DATETIME: 8,
}
_BEFORE_FRACTION = {TIMESTAMP: 4, DATETIME: 5, TIME: 3}


def _of_one_byte(code: int, value: int) -> Stored:
    if code in _BEFORE_FRACTION:
        return Stored("", code, _BEFORE_FRACTION[code] + (value + 1) // 2, value)
    return Stored("", code, value)


def _of_two_bytes(code: int, first: int, second: int) -> Stored:
    if code == DECIMAL:
        return Stored("", code, first, second)
    if code == BIT:
        return Stored("", code, second + (first > 0), second * 8 + first)
    if code in (VARCHAR, VAR_STRING, VARCHAR_COMPRESSED):
        longest = first | second << 8
        return Stored("", code, 1 if longest < 256 else 2, longest)
    # Bits of the length are hidden in those of the type.
    if first in (ENUM, SET):
        return Stored("", first, second)
    longest = second
    if first & 0x30 != 0x30:
        longest |= ((first & 0x30) ^ 0x30) << 4
    return Stored("", STRING, 1 if longest < 256 else 2, longest)


def _describe(columns: list[Stored], event: bytes, at: int, *, mariadb: bool) -> None:
    """Add the metadata that stands at the end of the event.

    MariaDB counts a YEAR among the columns that have a sign, and shapes among those that have a collation.
    """
    with_sign = _NUMBERS | {YEAR} if mariadb else _NUMBERS
    with_collation = _CHARACTERS | {GEOMETRY} if mariadb else _CHARACTERS
    found: dict[int, bytes] = {}
    while at < len(event):
        kind = event[at]
        size, at = packed_integer(event, at + 1)
        found[kind] = event[at : at + size]
        at += size
    if _NAMES not in found:
        raise SourceConfigError(
            "the binlog does not tell the names of columns",
            hint="SET GLOBAL binlog_row_metadata = 'FULL' on the server; open sessions keep what they had",
        )
    names = list(_words(found[_NAMES]))
    numbers = [place for place, each in enumerate(columns) if each.code in with_sign]
    signs = found.get(_SIGNEDNESS, b"")
    unsigned = (
        {place for n, place in enumerate(numbers) if signs[n // 8] & (0x80 >> n % 8)} if signs else set()
    )
    characters = [place for place, each in enumerate(columns) if each.code in with_collation]
    enums = [place for place, each in enumerate(columns) if each.code in (ENUM, SET)]
    collations = {
        **_collations(characters, found.get(_DEFAULT_CHARSET), found.get(_COLUMN_CHARSET)),
        **_collations(enums, found.get(_DEFAULT_ENUM_CHARSET), found.get(_ENUM_CHARSET)),
    }
    lists = {
        code: _word_lists(found.get(kind, b"")) for code, kind in ((ENUM, _ENUM_WORDS), (SET, _SET_WORDS))
    }
    for place, each in enumerate(columns):
        columns[place] = Stored(
            names[place],
            each.code,
            each.size,
            each.scale,
            place in unsigned,
            collations.get(place, 0),
            next(lists[each.code]) if each.code in lists else (),
        )


def _collations(places: list[int], default: bytes | None, each: bytes | None) -> dict[int, int]:
    """The collation of each column that has one: all of them, or those that differ from the default."""
    if each is not None:
        return dict(zip(places, _integers(each), strict=True))
    if default is None:
        return {}
    first, *others = _integers(default)
    exceptions = dict(zip(others[::2], others[1::2], strict=True))
    return {place: exceptions.get(number, first) for number, place in enumerate(places)}


def _integers(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = packed_integer(data, at)
        yield value


def _words(data: bytes) -> Iterator[str]:
    at = 0
    while at < len(data):
        size, at = packed_integer(data, at)
        yield data[at : at + size].decode()
        at += size


def _word_lists(data: bytes) -> Iterator[tuple[bytes, ...]]:
    at = 0
    while at < len(data):
        count, at = packed_integer(data, at)
        made = []
        for _ in range(count):
            size, at = packed_integer(data, at)
            made.append(data[at : at + size])
            at += size
        yield tuple(made)
