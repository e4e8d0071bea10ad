"""Records as hostile as they come, with what Python's own modules make of each."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import random

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("d", pa.decimal128(12, 3)),
        ("f", pa.float64()),
        ("s", pa.string()),
    ]
)
NAMES = SCHEMA.names
csv.field_size_limit(1 << 30)


@dataclass(frozen=True)
class Record:
    """One record; `values` is None where it must become a letter."""

    raw: bytes
    values: tuple[Any, ...] | None
    either: bool = False
    """Row or letter: nobody says what its quotes mean."""


TEXTS = [
    b"plain",
    b"",
    "é漢😀".encode(),
    b"a\0b",
    b"\0",
    "\ufeffmark".encode(),
    "a\u2028b\u0085c".encode(),
    b" blanks ",
    b"back\\slash",
    b"it's #1",
    b"\\ud800",
    b"[{:}]",
]
INVALID = [
    b"\xff",
    b"\xfe\xff",
    b"a\xc0\xafb",
    b"\xed\xa0\x80",
    b"\xe6\xbc",
    b"\xf8\x88\x80\x80\x80",
    b"\x80",
]
HALVES = [rb"\ud800", rb"x\uDC00y", rb"\udc00\ud800", rb"\uD83Dx"]
WHOLES = [rb"\ud83d\ude00", rb"\\ud800", rb"\ud7ff"]


def number(rng: random.Random) -> bytes:
    return rng.choice([b"", b"0", b"-7", str(rng.randrange(-(10**18), 10**18)).encode()])


def csv_record(rng: random.Random, token: str, delimiter: str) -> Record:
    """A record of five fields, most of the time."""
    comma, k = delimiter.encode(), token.encode()
    other = b";" if comma != b";" else b","
    n, d, f = (
        number(rng),
        rng.choice([b"", b"1.5", b"-0.125", b"7"]),
        rng.choice([b"", b"2.5", b"1e3", b"NaN"]),
    )
    text = rng.choice(TEXTS)

    def made(*fields: bytes) -> Record:
        return csv_expected(comma.join(fields), delimiter)

    def quoted(content: bytes) -> bytes:
        return b'"' + content.replace(b'"', b'""') + b'"'

    kind = rng.randrange(20)
    if kind == 0:
        return made(k, n, d, f, rng.choice(INVALID))
    if kind == 1:
        return made(k, *rng.choice([[], [n], [n, d, f], [n, d, f, text, b"more"], [b"x"] * 25_000]))
    if kind == 2:
        return made(k, rng.choice([b"x", b"1.5", b"9223372036854775808", b"--1", b"0x1"]), d, f, text)
    if kind == 3:
        return made(k, n, rng.choice([b"1.2345", b"1e12", b"word", b"NaN"]), f, text)
    if kind == 4:
        return made(
            k, n, d, f, quoted(rng.choice([b"a" + comma + b"b", b'"', b"a\nb", b"a\r\nb", b"\n\n", b"x\ry"]))
        )
    if kind == 5:
        return made(k, quoted(n), quoted(d), quoted(f), quoted(text))
    if kind == 6:
        return made(k, n, d, f, rng.choice([b'5" pipe', b'a"b"c', b"a\rb", other, b'it""s']))
    if kind == 7:
        odd = rng.choice([b'"a"b', b'"a" ', b'"a""b"c', b'"a"b"c"'])
        return Record(comma.join([k, n, d, f, odd]), None, either=True)
    if kind == 8:
        return made(k, n, d, f, rng.choice([b"y", b'""', b"z "]) * rng.choice([10, 10, 10, 70_000, 500_000]))
    if kind == 9:
        return made(rng.choice([b"\xef\xbb\xbf", b"\0", b"#", b" "]) + k, n, d, f, text)
    if kind == 10:
        return csv_expected(comma.join(name.encode() for name in NAMES), delimiter)
    return made(k, n, d, f, text)


def csv_expected(raw: bytes, delimiter: str) -> Record:
    """What Python's csv module makes of one record; a carriage return within it is a character to us."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return Record(raw, None)
    rows = list(csv.reader(io.StringIO(text.replace("\r", "\ue000"), newline=""), delimiter=delimiter))
    fields = [field.replace("\ue000", "\r") or None for field in rows[0]] if len(rows) == 1 else []
    return Record(raw, typed(fields, int_of_text) if len(fields) == len(NAMES) else None)


def int_of_text(value: Any) -> int:
    return int(value)


def int_of_json(value: Any) -> int:
    if type(value) is not int:
        raise ValueError
    return value


def typed(fields: list[Any], integer: Any) -> tuple[Any, ...] | None:
    """The values of the columns; None when one does not fit."""
    k, n, d, f, s = fields
    try:
        whole = None if n is None else integer(n)
        amount = None if d is None else Decimal(d)
        double = None if f is None else float(f)
    except (ValueError, InvalidOperation, TypeError):
        return None
    if whole is not None and not -(2**63) <= whole < 2**63:
        return None
    if amount is not None and not (amount.is_finite() and abs(amount) < 10**9 and amount == round(amount, 3)):
        return None
    if double in (float("inf"), float("-inf")) and isinstance(f, Decimal):
        return None
    return k, whole, amount, double, s


def json_record(rng: random.Random, token: str) -> Record:
    """An object of five fields, most of the time."""
    good: dict[str, Any] = {"k": token, "n": int(number(rng) or b"0"), "f": 2.5}
    good["s"] = rng.choice(TEXTS).decode() if rng.random() < 0.9 else "y" * rng.choice([10, 30_000])
    raw = json.dumps(good, ensure_ascii=rng.random() < 0.5).encode()
    raw = raw[:-1] + b', "d": %s}' % rng.choice([b"1.5", b"-0.125", b"null", b'"7"'])

    def with_text(inside: bytes) -> bytes:
        return raw[:-1] + b', "s": "%s"}' % inside

    def with_value(name: bytes, value: bytes) -> bytes:
        return raw[:-1] + b', "%s": %s}' % (name, value)

    kind = rng.randrange(20)
    if kind == 0:
        raw = with_text(rng.choice(INVALID))
    elif kind == 1:
        raw = with_text(rng.choice(HALVES + WHOLES))
    elif kind == 2:
        raw = with_value(rng.choice([rb"\ud800", b"", b"new", b"K"]), b"1")
    elif kind == 3:
        raw = with_value(
            b"n", rng.choice([b"NaN", b"1.5", b'"x"', b"9223372036854775808", b"[1]", b"01", b"+1", b"true"])
        )
    elif kind == 4:
        raw = with_value(b"d", rng.choice([b"NaN", b"1.2345", b"1e12", b"Infinity", b"{}"]))
    elif kind == 5:
        raw = with_value(b"f", rng.choice([b"NaN", b"Infinity", b"-Infinity", b"1e400", b"[]", b'"word"']))
    elif kind == 6:
        raw += rng.choice([b"x", b"}", b"]", b' {"k": 1}', b"{}", b", {}", b" // end"])
    elif kind == 7:
        raw = rng.choice(
            [b"[%s]" % raw, raw[: rng.randrange(1, len(raw))], b'"%s"' % token.encode(), b"null", b"7"]
        )
    elif kind == 8:
        depth = rng.choice([5, 5000])
        raw = with_value(b"deep", b"[" * depth + b"]" * depth)
    elif kind == 9:
        raw = rng.choice([b"\xef\xbb\xbf", b"\0", b" ", b"\t"]) + raw
    elif kind == 10:
        raw = with_text(rng.choice([b"a\0b", b"a\tb", rb"a\u0000b", rb"a\x", b"a'b"]))
    elif kind == 11:
        raw = rng.choice([raw.replace(b'"', b"'"), raw[:-1] + b",}", raw.replace(b'"k"', b"k")])
    return json_expected(raw)


def json_expected(raw: bytes) -> Record:
    """What Python's json module makes of one record; NaN and halves of surrogate pairs are no JSON."""
    try:
        text = raw.decode()
        value = json.loads(text, parse_float=Decimal, parse_constant=int)
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except (ValueError, RecursionError):
        return Record(raw, None)
    if not isinstance(value, dict):
        return Record(raw, None)
    fields = [value.get(name) for name in NAMES]
    if any(isinstance(field, bool | dict | list) for field in fields):
        return Record(raw, None)
    # An earlier value of the same name may be one that does not fit, which is a letter as well.
    return Record(raw, typed(fields, int_of_json), either=text.count('"n"') > 1 or text.count('"d"') > 1)
