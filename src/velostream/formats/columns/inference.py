"""Type inference: what a text looks like, and the type that holds all values seen."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.formats.json.escapes import HALF_A_PAIR, has_half_a_pair
from velostream.formats.json.numbers import restored

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_INTEGER = re.compile(r"-?(?:0|[1-9]\d*)")
_FRACTION = re.compile(r"-?(?:0|[1-9]\d*)?\.(\d+)|-?(?:0|[1-9]\d*)\.")
_EXPONENT = re.compile(r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)[eE][-+]?\d+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?\s?(?:Z|[+-]\d\d(?::?\d\d)?|UTC)?"
)
UTC_TIMESTAMP = pa.timestamp("us", tz="UTC")
MOST_DIGITS = 38
_USUAL_DIGITS = 18
_LONGEST_BIGINT = 19
_LARGEST_BIGINT = 2**63 - 1


@dataclass
class Seen:
    """What the values of one column looked like."""

    kinds: set[str] = field(default_factory=set)
    whole_digits: int = 0
    scale: int = 0
    fields: dict[str, Seen] = field(default_factory=dict)
    items: Seen | None = None

    def type(self) -> pa.DataType:
        """The narrowest type that holds every value; text when nothing else does."""
        kinds = self.kinds
        if not kinds:
            return pa.string()
        if kinds <= {"struct"}:
            return pa.struct([pa.field(name, seen.type()) for name, seen in self.fields.items()])
        if kinds <= {"list"}:
            return pa.list_(self.items.type() if self.items else pa.string())
        if kinds <= {"integer", "decimal"}:
            return self._number(kinds)
        if kinds <= {"integer", "decimal", "double"}:
            return pa.float64()
        simple = {"boolean": pa.bool_(), "date": pa.date32(), "timestamp": UTC_TIMESTAMP}
        if len(kinds) == 1:
            return simple.get(next(iter(kinds)), pa.string())
        return UTC_TIMESTAMP if kinds == {"date", "timestamp"} else pa.string()

    def _number(self, kinds: set[str]) -> pa.DataType:
        if kinds == {"integer"} and self.whole_digits <= _LONGEST_BIGINT:
            return pa.int64()
        return decimal_type(self.whole_digits, self.scale) or pa.string()

    def add_text(self, text: str) -> None:
        """Add a field of a CSV record, or a text in JSON that may be a date."""
        text = text.strip()
        if _INTEGER.fullmatch(text):
            self._add_number("integer", text.lstrip("-"), "")
        elif _FRACTION.fullmatch(text):
            whole, _, fraction = text.lstrip("-").partition(".")
            self._add_number("decimal", whole, fraction)
        elif _DATE.fullmatch(text):
            self.kinds.add("date")
        elif _TIMESTAMP.fullmatch(text):
            self.kinds.add("timestamp")
        elif text.lower() in ("true", "false"):
            self.kinds.add("boolean")
        else:
            self.kinds.add("double" if _EXPONENT.fullmatch(text) else "text")

    def add_json(self, value: Any) -> None:
        """Add a value of a JSON record, numbers as `Number`."""
        if value is None:
            return
        if isinstance(value, bool):
            self.kinds.add("boolean")
        elif isinstance(value, int | Number):
            self.add_text(str(value))
        elif isinstance(value, str):
            self._add_json_text(value)
        elif isinstance(value, dict):
            self.kinds.add("struct")
            for name, item in value.items():
                self.fields.setdefault(name, Seen()).add_json(item)
        else:
            self.kinds.add("list")
            self.items = self.items or Seen()
            for item in value:
                self.items.add_json(item)

    def _add_json_text(self, text: str) -> None:
        if _DATE.fullmatch(text):
            self.kinds.add("date")
        elif _TIMESTAMP.fullmatch(text):
            self.kinds.add("timestamp")
        else:
            self.kinds.add("text")

    def _add_number(self, kind: str, whole: str, fraction: str) -> None:
        self.kinds.add(kind)
        digits = len(whole.lstrip("0"))
        if digits == _LONGEST_BIGINT and int(whole) > _LARGEST_BIGINT:
            digits += 1
        self.whole_digits = max(self.whole_digits, digits)
        self.scale = max(self.scale, len(fraction))


class Number(str):
    """The text of a JSON number with a point or an exponent."""

    __slots__ = ()


def decimal_type(whole_digits: int, scale: int) -> pa.DataType | None:
    """A decimal for so many digits, at least 18; None when 38 are not enough."""
    digits = whole_digits + scale
    return pa.decimal128(max(digits, _USUAL_DIGITS), scale) if digits <= MOST_DIGITS else None


def infer_csv(columns: Sequence[str], rows: Iterable[Sequence[str | None]]) -> pa.Schema:
    """The schema of CSV records; NULL does not affect a type."""
    values: list[set[str]] = [set() for _ in columns]
    for row in rows:
        for texts, text in zip(values, row, strict=False):
            if text is not None:
                texts.add(text)
    fields = []
    for name, texts in zip(columns, values, strict=True):
        seen = Seen()
        for text in texts:
            seen.add_text(text)
            if "text" in seen.kinds:
                break
        fields.append(pa.field(name, seen.type()))
    return pa.schema(fields)


def infer_json(records: Iterable[str | bytes]) -> pa.Schema:
    """The schema of JSON records; records that are no object are ignored."""
    top = Seen()
    for record in records:
        value = parse_json(record)
        if isinstance(value, dict):
            top.add_json(value)
    return pa.schema([pa.field(name, seen.type()) for name, seen in top.fields.items()])


def parse_json(record: str | bytes) -> Any:
    """A JSON record with the digits of its numbers kept; None when it is not JSON."""
    try:
        return load_json(restored(record if isinstance(record, str) else record.decode()))
    except ValueError:
        return None


def load_json(text: str) -> Any:
    """The value of a JSON text, with the digits of its numbers kept; ValueError says why it is invalid."""
    try:
        value = json.loads(text, parse_float=Number, parse_constant=_refuse)
    except RecursionError as exc:
        raise ValueError("not JSON: nested too deeply") from exc
    except ValueError as exc:
        raise ValueError(f"not JSON: {exc}") from exc
    if has_half_a_pair(text):
        raise ValueError(HALF_A_PAIR)
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON number")


def merge_schemas(known: pa.Schema, seen: pa.Schema) -> pa.Schema:
    """`known` with columns that only `seen` has added at the end, and types widened where possible.

    Widening never turns a number into text: types that cannot be reconciled stay as known.
    """
    found: Mapping[str, pa.DataType] = {f.name: f.type for f in seen}
    fields = [pa.field(f.name, wider(f.type, found.get(f.name, f.type))) for f in known]
    taken = {f.name.casefold() for f in known}
    fields += [pa.field(f.name, f.type) for f in seen if f.name.casefold() not in taken]
    return pa.schema(fields)


def wider(known: pa.DataType, seen: pa.DataType) -> pa.DataType:
    """The type that holds both, if it is a wider number, a timestamp for a date, or a nested one."""
    if known == seen:
        return known
    if _numeric(known) and _numeric(seen):
        (whole, scale), (other_whole, other_scale) = _digits(known), _digits(seen)
        return decimal_type(max(whole, other_whole), max(scale, other_scale)) or known
    if pa.types.is_date(known) and pa.types.is_timestamp(seen):
        return seen
    if pa.types.is_struct(known) and pa.types.is_struct(seen):
        return pa.struct(list(merge_schemas(pa.schema(list(known)), pa.schema(list(seen)))))
    if pa.types.is_list(known) and pa.types.is_list(seen):
        return pa.list_(wider(known.value_type, seen.value_type))
    return known


def _numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _digits(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    return 19, 0


def number_type(text: str) -> pa.DataType | None:
    """The smallest decimal type that holds a number, exponent or not; None when it is no number."""
    try:
        value = Decimal(text.strip())
    except ArithmeticError:
        return None
    if not value.is_finite():
        return None
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    needed = max(0, len(digits) + exponent) + scale
    return pa.decimal128(max(1, needed), scale) if needed <= MOST_DIGITS else None
