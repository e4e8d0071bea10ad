"""Shapes: the columns that a relation offers to a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.model.columns import SYSTEM_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

WINDOW_COLUMNS = ("window_start", "window_end", "_window_start", "_window_end")


@dataclass(frozen=True)
class Shape:
    """Columns by name. `names` None means that they are unknown, and any name is accepted.

    `hidden` columns may be named but are not part of `*`. `relation` is the tree's name of a source, table or
    stream, under which the use of columns is recorded; None for CTEs and subqueries.
    """

    names: tuple[str, ...] | None
    hidden: tuple[str, ...] = ()
    relation: str | None = None
    spelled: str = ""
    """The name of a CTE, as WITH writes it."""

    def offers(self, name: str) -> bool | None:
        """Whether the column exists; None when that is not known."""
        folded = name.lower()
        if any(folded == known.lower() for known in self.hidden):
            return True
        if self.names is None:
            return None
        if any(folded == known.lower() for known in self.names):
            return True
        # Spark names an unnamed expression after its text; such a name can only be accepted unchecked.
        return (
            None
            if not name.isidentifier() and any(not known.isidentifier() for known in self.names)
            else False
        )

    def renamed(self, columns: Iterable[str]) -> Shape:
        """The same relation with other column names, as in `t(a, b)`."""
        return Shape(tuple(columns))


OPEN = Shape(None)


def source_shape(names: tuple[str, ...] | None, relation: str, further: tuple[str, ...]) -> Shape:
    """The shape of a source: its columns, the system columns of all sources, and `further` ones."""
    hidden = (*SYSTEM_COLUMNS, *further)
    taken = {name.lower() for name in names or ()}
    return Shape(names, tuple(name for name in hidden if name not in taken), relation)
