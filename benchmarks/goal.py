"""A figure that a benchmark is meant to reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Goal:
    """One figure and its bound: at least so much of it, or at most."""

    text: str
    unit: str
    bound: float
    value: Callable[[Any], float]
    """The figure, out of all that was found."""
    at_most: bool = False

    @property
    def wanted(self) -> str:
        """The bound, in words."""
        return f"{'at most' if self.at_most else 'at least'} {self.bound:,g} {self.unit}"

    def holds(self, value: float) -> bool:
        """Whether the figure is within its bound."""
        return value <= self.bound if self.at_most else value >= self.bound
