"""What a statement needs of a source: a source that is asked by a query need not send more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import date, datetime
    from decimal import Decimal

    Value = int | Decimal | str | bool | date | datetime


@dataclass(frozen=True)
class Comparison:
    """A comparison of a column with constants; rows that fail it need not be sent."""

    column: str
    operator: str
    """`=`, `<>`, `<`, `<=`, `>`, `>=`, `IN`, `IS NULL` or `IS NOT NULL`."""
    values: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Narrowing:
    """The part of a source's rows and columns that a statement reads; it applies all of it again."""

    columns: frozenset[str] | None = None
    """None: all."""
    comparisons: tuple[Comparison, ...] = ()
    """All of these hold for the rows that are needed."""
    most: int | None = None
    """How many rows are enough, whichever they are, where all of `comparisons` were applied."""
