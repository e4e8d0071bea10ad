"""How a table, or what it is made of, is: one of five words, and the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

HEALTHY = "healthy"
HEALTHS = (HEALTHY, "degraded", "disconnected", "file not found", "failed")
"""From the best to the worst."""

Health = tuple[str, str | None]
WELL: Health = (HEALTHY, None)


def worst(told: Iterable[Health]) -> Health:
    """The worst of several; the first that is as bad tells the reason."""
    return max(told, key=lambda each: HEALTHS.index(each[0]), default=WELL)
