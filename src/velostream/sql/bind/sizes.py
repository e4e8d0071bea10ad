"""Size limit of functions whose result is as large as an argument says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 1 << 24
"""The most characters of a text, or elements of an array: a gigabyte stalls Spark for minutes, or ends it."""
_COUNT = {"repeat": 1, "lpad": 1, "rpad": 1, "space": 0, "array_repeat": 1}
"""The index of the argument that gives the size."""
_ARRAYS = frozenset({"sequence", "array_repeat"})


def refuse_size(call: exp.Anonymous) -> None:
    """Refuse a call whose literal arguments give too large a result."""
    size = _size(call)
    if size is not None and size > MOST:
        name = call.name.lower()
        what = "elements" if name in _ARRAYS else "characters"
        raise SqlError(
            f"{name} would make {size:,} {what}", hint=f"at most {MOST:,} are allowed in one value"
        )


def _size(node: exp.Expr) -> int | None:
    """The size of a result, as far as literals in the statement show; None when unknown."""
    if isinstance(node, exp.Literal) and node.is_string:
        return len(node.this)
    if not isinstance(node, exp.Anonymous):
        return None
    name, given = node.name.lower(), node.expressions
    if name == "sequence":
        numbers = [_number(each) for each in given]
        if any(number is None for number in numbers) or len(numbers) < 2:
            return None
        first, last, step = [*numbers, 1 if numbers[0] <= numbers[1] else -1][:3]  # type: ignore[operator]
        return abs(last - first) // abs(step) + 1 if step else None  # type: ignore[operator]
    if name not in _COUNT or len(given) <= _COUNT[name]:
        return None
    count = _number(given[_COUNT[name]])
    if count is None:
        return None
    return max(0, count) * (max(1, _size(given[0]) or 1) if name in ("repeat", "array_repeat") else 1)


_OPERATIONS: dict[type[exp.Expr], Callable[[int, int], int]] = {
    exp.Add: lambda a, b: a + b,
    exp.Sub: lambda a, b: a - b,
    exp.Mul: lambda a, b: a * b,
}


def _number(node: exp.Expr) -> int | None:
    """The value of an integer literal, or of a constant computation; None when unknown."""
    if isinstance(node, exp.Paren | exp.Cast):
        return _number(node.this)
    if isinstance(node, exp.Neg):
        inner = _number(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        return int(node.this)
    operation = _OPERATIONS.get(type(node))
    if operation is None:
        return None
    left, right = _number(node.this), _number(node.expression)
    return None if left is None or right is None else operation(left, right)
