"""Which rows of a step a server takes, where it refuses the step as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Attempt = Callable[[Sequence[int]], "RefusedRowError | None"]
    """Writes rows with these numbers after those that were written before; or nothing, and returns why."""


class RefusedRowError(Exception):
    """The server refuses a row; the message is its reason, and the cause its error."""

    def __init__(self, reason: str, *, for_others: bool = False) -> None:
        super().__init__(reason)
        self.for_others = for_others
        """Whether the reason are other rows, so that it may be taken once those are written or gone."""


def write_taken(
    rows: Sequence[int], outdated: Mapping[int, int], attempt: Attempt
) -> dict[int, RefusedRowError]:
    """Write what the server takes, in this order, and return the rows that it refuses, each with its reason.

    `outdated` tells of a row which one is the deletion of its earlier version. That is not true any more if
    the row is refused, so it is deleted. Rows that were refused for others are tried again after what has
    changed: in the end, only those are refused that do not fit what the step leaves.
    """
    refused: dict[int, RefusedRowError] = {}
    deleted: set[int] = set()
    left = list(rows)
    while left:
        found = _search(left, attempt)
        for number in left:
            refused.pop(number, None)
        refused |= found
        again = [number for number in left if number in found and found[number].for_others]
        fewer = len(again) < len(left)
        lost = set(found) - set(again) if fewer else set(found)
        old = [outdated[number] for number in left if number in lost and number in outdated]
        old = [number for number in old if number not in deleted]
        deleted |= set(old)
        freed = len(_search(old, attempt)) < len(old)
        left = again if fewer or freed else []
    return refused


def _search(rows: Sequence[int], attempt: Attempt) -> dict[int, RefusedRowError]:
    """Write rows, the first half of them before the second, where they are not taken together."""
    if not rows:
        return {}
    error = attempt(rows)
    if error is None:
        return {}
    if len(rows) == 1:
        return {rows[0]: error}
    middle = len(rows) // 2
    found = _search(rows[:middle], attempt)
    return found | _search(rows[middle:], attempt)
