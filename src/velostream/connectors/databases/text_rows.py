"""Rows that a database sends as text, as Arrow columns; values that do not fit set their row aside."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from velostream.connectors.narrowing import Narrowing


@dataclass(frozen=True)
class TextColumn:
    """A column, and how its text is read."""

    name: str
    type: pa.DataType
    decode: Callable[[pa.Array], pa.Array]
    told: str
    """Its type as the database calls it."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_NamedT = TypeVar("_NamedT", bound=_Named)


def needed(columns: Sequence[_NamedT], narrowing: Narrowing, always: Collection[str]) -> list[_NamedT]:
    """The columns that a statement needs, with those that are needed in any case; at least one."""
    if narrowing.columns is None:
        return list(columns)
    names = {name.casefold() for name in (*narrowing.columns, *always)}
    return [column for column in columns if column.name.casefold() in names] or list(columns[:1])


@dataclass(frozen=True)
class Bad:
    """Why a row does not fit its columns, and the row as the database sent it, as JSON."""

    reason: str
    raw: str


@dataclass(frozen=True)
class Decoded:
    """Typed columns; a value that does not fit is null, and its row in `bad`, by its number."""

    columns: Mapping[str, pa.Array]
    bad: Mapping[int, Bad]


def decode(columns: Sequence[TextColumn], texts: Sequence[pa.Array]) -> Decoded:
    """The text of each column, typed."""
    made: dict[str, pa.Array] = {}
    reasons: dict[int, str] = {}
    for column, text in zip(columns, texts, strict=True):
        try:
            made[column.name] = column.decode(text)
        except (pa.ArrowException, ValueError, OverflowError):
            made[column.name], found = _one_by_one(column, text)
            reasons = {**found, **reasons}
    return Decoded(made, {row: Bad(why, _raw(columns, texts, row)) for row, why in sorted(reasons.items())})


def _one_by_one(column: TextColumn, text: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """The values that fit, null for others, which are searched for by halves: they are few."""
    bad: dict[int, str] = {}
    parts: list[pa.Array] = []

    def take(start: int, stop: int) -> None:
        try:
            parts.append(column.decode(text.slice(start, stop - start)))
        except (pa.ArrowException, ValueError, OverflowError):
            if stop - start == 1:
                bad[start] = f'"{text[start].as_py()}" in column "{column.name}" does not fit {column.type}'
                parts.append(pa.nulls(1, column.type))
                return
            middle = (start + stop) // 2
            take(start, middle)
            take(middle, stop)

    if len(text):
        take(0, len(text))
    return pa.concat_arrays(parts) if parts else pa.nulls(0, column.type), bad


def _raw(columns: Sequence[TextColumn], texts: Sequence[pa.Array], row: int) -> str:
    values = {column.name: text[row].as_py() for column, text in zip(columns, texts, strict=True)}
    return json.dumps(values, ensure_ascii=False, default=_as_text)


def _as_text(value: object) -> str:
    """A value that JSON has no form for; bytes that are no text are shown as escapes."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def key_text(columns: Sequence[pa.Array]) -> pa.Array:
    """The text that identifies a row by its key: equal for equal keys, and for no others.

    One column is its own text; of several, each is preceded by its length.
    """
    texts = [_text(column) for column in columns]
    if len(texts) == 1:
        return texts[0]
    parts = []
    for text in texts:
        parts += [pc.utf8_length(text).cast(pa.string()), text]
    return pc.binary_join_element_wise(*parts, ":")


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type):
        return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())
    return column if pa.types.is_string(column.type) else column.cast(pa.string())
