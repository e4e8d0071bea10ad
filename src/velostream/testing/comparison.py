"""Compares the expectation of a case with the result; shows the difference."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import CaseError, did_you_mean
from velostream.model.columns import WEIGHT
from velostream.testing.cells import aligned, comparable, text_of, value_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from velostream.testing.cases import Rows


@dataclass(frozen=True)
class _Row:
    """A row to compare: its sign where changes are compared, and its values in the columns of the case."""

    sign: str
    values: tuple[Any, ...]

    @property
    def key(self) -> Any:
        return (self.sign, *(comparable(value) for value in self.values))

    def cells(self) -> list[str]:
        texts = [text_of(value) for value in self.values]
        return [f"{self.sign} {texts[0]}" if self.sign else texts[0], *texts[1:]]

    def alike(self, other: _Row) -> int:
        """The similarity of two rows: first columns, which tend to be keys, count more."""
        pairs = zip(self.key[1:], other.key[1:], strict=True)
        return (self.sign == other.sign) + sum(
            2 + (place == 0) for place, (mine, theirs) in enumerate(pairs) if mine == theirs
        )


def rows_differ(expected: Rows | None, actual: pa.Table, what: str, *, signed: bool = False) -> str | None:
    """None when the rows are the same, in any order; else both beside each other.

    Only the columns that the case names are compared. `signed`: rows are changes, with a `_weight`.
    """
    names = [name for name in actual.schema.names if name != WEIGHT]
    columns = list(expected.columns) if expected is not None else names
    for name in columns:
        if name not in names:
            hint = did_you_mean(name, names) or f"its columns are {', '.join(names)}"
            place = expected.lines[0].location if expected is not None and expected.lines else None
            raise CaseError(f'{what} has no column "{name}"', hint=hint, location=place)
    wanted = _expected(expected, actual.schema, signed=signed)
    there = _actual(actual, columns, signed=signed)
    missing = _without(wanted, there)
    surplus = _without(there, wanted)
    if not missing and not surplus:
        return None
    same = _without(wanted, missing)
    kinds = [actual.schema.field(name).type for name in columns]
    numbers = [pa.types.is_integer(k) or pa.types.is_decimal(k) or pa.types.is_floating(k) for k in kinds]
    return _beside(columns, same, _paired(missing, surplus), [False, *numbers[1:]] if signed else numbers)


def letters_differ(expected: Rows | None, actual: Sequence[Mapping[str, Any]]) -> str | None:
    """None when lines and dead letters match one to one; else what does not match."""
    lines = expected.lines if expected is not None else ()
    columns = expected.columns if expected is not None else ()

    def fits(line: int, letter: int) -> bool:
        cells = zip(columns, lines[line].cells, strict=True)
        return all((text or "") in _letter_text(actual[letter][name]) for name, text in cells)

    taken: dict[int, int] = {}

    def place(line: int, tried: set[int]) -> bool:
        for letter in range(len(actual)):
            if letter not in tried and fits(line, letter):
                tried.add(letter)
                if letter not in taken or place(taken[letter], tried):
                    taken[letter] = line
                    return True
        return False

    unmet = [lines[number].text for number in range(len(lines)) if not place(number, set())]
    left = [letter for number, letter in enumerate(actual) if number not in taken]
    if not unmet and not left:
        return None
    told = [f"  expected, but there is none:  {text}" for text in unmet]
    told += [f"  there, but not expected:      {letter_line(letter)}" for letter in left]
    return "\n".join(told)


def letter_line(letter: Mapping[str, Any]) -> str:
    """A dead letter in one line."""
    return f"{letter['reason']}  (job {letter['job']}, row: {_letter_text(letter['raw'])})"


def _letter_text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value or "")


def _expected(expected: Rows | None, schema: pa.Schema, *, signed: bool) -> list[_Row]:
    rows = []
    for line in expected.lines if expected is not None else ():
        values = []
        assert expected is not None
        for name, text in zip(expected.columns, line.cells, strict=True):
            try:
                values.append(value_of(text, schema.field(name).type))
            except ValueError as exc:
                raise CaseError(f"{name}: {exc}", location=line.location) from None
        rows.append(_Row(line.sign if signed else "", tuple(values)))
    return rows


def _actual(actual: pa.Table, columns: list[str], *, signed: bool) -> list[_Row]:
    values = zip(*(actual.column(name).to_pylist() for name in columns), strict=True)
    if not signed or WEIGHT not in actual.schema.names:
        return [_Row("+" if signed else "", row) for row in values]
    weights = actual.column(WEIGHT).to_pylist()
    return [
        _Row("+" if weight > 0 else "-", row)
        for weight, row in zip(weights, values, strict=True)
        for _ in range(abs(weight))
    ]


def _without(rows: list[_Row], others: list[_Row]) -> list[_Row]:
    counts = Counter(row.key for row in others)
    left = []
    for row in rows:
        if counts[row.key] > 0:
            counts[row.key] -= 1
        else:
            left.append(row)
    return left


def _paired(missing: list[_Row], surplus: list[_Row]) -> list[tuple[_Row | None, _Row | None]]:
    """Rows that differ, each beside the most similar one."""
    left = list(surplus)
    pairs: list[tuple[_Row | None, _Row | None]] = []
    for row in missing:
        best = max(left, key=row.alike, default=None)
        if best is not None and row.alike(best) > 1:
            left.remove(best)
            pairs.append((row, best))
        else:
            pairs.append((row, None))
    return [*pairs, *((None, row) for row in left)]


def _beside(
    columns: list[str],
    same: list[_Row],
    differing: list[tuple[_Row | None, _Row | None]],
    numbers: list[bool],
) -> str:
    pairs: list[tuple[_Row | None, _Row | None]] = [*((row, row) for row in same), *differing]
    signed = any(row.sign for pair in pairs for row in pair if row is not None)
    names = [f"  {columns[0]}", *columns[1:]] if signed else columns
    blank = [""] * len(columns)
    cells = [row.cells() if row is not None else blank for pair in pairs for row in pair]
    lines = aligned([names, *cells], numbers)
    absent = [row is None for pair in pairs for row in pair]
    texts = ["" if none else line for line, none in zip(lines[1:], absent, strict=True)]
    width = max(len(line) for line in [lines[0], *texts, "expected"])
    shown = [f"    {'expected'.ljust(width)}    actual", f"    {lines[0].ljust(width)}    {lines[0]}"]
    for (wanted, there), mine, theirs in zip(pairs, texts[::2], texts[1::2], strict=True):
        mark, note = " ", ""
        if wanted is None:
            mark, note = ">", "    (not expected)"
        elif there is None:
            mark, note = "<", "    (missing)"
        elif wanted.key != there.key:
            mark = "!"
        shown.append(f"  {mark} {mine.ljust(width)}    {theirs}{note}".rstrip())
    return "\n".join(shown)
