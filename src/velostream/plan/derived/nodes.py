"""Derived relations as a tree: how each follows from those below it, and by which keys.

Every node is SQL over views named after its children, so that Spark runs the same text over a few rows or
over all of them. Trees are made in pure Python (`plan/derived/build.py`) and run by `engine/inputs/derived`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from velostream.plan.steps import Step


INNER = "JOIN"
"""The word of an inner join."""


@dataclass(frozen=True, eq=False)
class Node:
    """A relation: the view that stands for it in the SQL above, and its columns."""

    view: str
    columns: tuple[str, ...]

    @property
    def below(self) -> tuple[Node, ...]:
        """The relations it is made of."""
        return ()


@dataclass(frozen=True, eq=False)
class Scan(Node):
    """Rows of an input. Each use of an input is a scan of its own: they are restricted by different keys."""

    relation: str


@dataclass(frozen=True, eq=False)
class Each(Node):
    """Every row by itself: filtered, projected, exploded. `origin` tells which columns are handed through."""

    sql: str
    child: Node
    origin: Mapping[str, str]

    @property
    def below(self) -> tuple[Node, ...]:
        """Its one child."""
        return (self.child,)


@dataclass(frozen=True, eq=False)
class Both(Node):
    """UNION ALL: rows of all children, columns by position."""

    sql: str
    children: tuple[Node, ...]

    @property
    def below(self) -> tuple[Node, ...]:
        """All children."""
        return self.children


@dataclass(frozen=True, eq=False)
class Side:
    """One child of a keyed node and the columns of it that hold the key."""

    node: Node
    keys: tuple[str, ...]
    extended: bool = False
    """Whether its columns are null in rows of the other side that match nothing."""


@dataclass(frozen=True, eq=False)
class Keyed(Node):
    """Rows of one key follow from the rows of that key in every child: joins, groups, windows, sets.

    Without keys there is one group of everything, and the node is computed again as a whole.
    """

    sql: str
    sides: tuple[Side, ...]
    origin: Mapping[str, tuple[int, str]]
    """Columns that are handed through: which side and which column of it."""
    step: Step
    nulls_meet: tuple[bool, ...] = ()
    """Per key column whether null equals null. Where not, rows with a null key stand by themselves."""
    word: str = field(default="")
    """Of a join: how SQL calls it."""

    @property
    def below(self) -> tuple[Node, ...]:
        """The children."""
        return tuple(side.node for side in self.sides)

    @property
    def keyed(self) -> bool:
        """Whether there are keys to follow."""
        return bool(self.sides[0].keys)


def walk(node: Node) -> Iterator[Node]:
    """Every node of the tree, children before parents."""
    for child in node.below:
        yield from walk(child)
    yield node
