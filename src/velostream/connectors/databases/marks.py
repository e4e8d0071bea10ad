"""SQL of the user's: its `?` marks, and the values that are bound to them."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    from collections.abc import Callable


def split_marks(text: str) -> list[str]:
    """The parts of a query around its `?` marks; those in quotes and comments are no marks."""
    parts, start, at = [], 0, 0
    text = text.rstrip().rstrip(";")
    while at < len(text):
        mark = text[at]
        if mark in "'\"`":
            end = text.find(mark, at + 1)
            at = len(text) if end < 0 else end
        elif text.startswith("--", at):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif text.startswith("/*", at):
            end = text.find("*/", at)
            at = len(text) if end < 0 else end + 1
        elif mark == "?":
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return [*parts, text[start:]]


def marked(text: str, values: int, mark: Callable[[int], str]) -> str:
    """A query whose marks are written as a driver wants them; `mark` is called with the number of each.

    Raises SourceConfigError unless there are as many marks as values.
    """
    parts = split_marks(text)
    if len(parts) - 1 != values:
        raise SourceConfigError(
            f"the query has {len(parts) - 1} ? marks, and {values} values are given",
            hint='"query.params" has one value, or a JSON list of several: "[1, \\"two\\"]"',
        )
    made = [parts[0]]
    for number, part in enumerate(parts[1:]):
        made += [mark(number), part]
    return "".join(made)


def percent_marked(text: str) -> str:
    """A query whose marks are `%s`, for drivers that take a lone `%` for one."""
    return "%s".join(map(percent_doubled, split_marks(text)))


def percent_doubled(text: str) -> str:
    """SQL without marks, for such drivers."""
    return text.replace("%", "%%")


def parameter_values(text: str | None) -> list[Any]:
    """The values of `query.params`: a JSON list, or one value, which is a text.

    Numbers with a point are decimals.
    """
    if text is None:
        return []
    if not text.lstrip().startswith("["):
        return [text]
    try:
        found = json.loads(text, parse_float=Decimal)
    except ValueError as exc:
        raise SourceConfigError(f'"query.params" is no JSON list: {exc}') from exc
    return [each if _single(each) else json.dumps(each, default=str) for each in found]


def _single(value: Any) -> bool:
    return value is None or isinstance(value, (str, bool, int, Decimal))
