"""Health of a table or source: one of five words, and the reason."""

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
    """The worst of several, with the reason of the first that is as bad."""
    return max(told, key=lambda each: HEALTHS.index(each[0]), default=WELL)
