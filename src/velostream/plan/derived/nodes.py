"""Nodes of a derived relation: SQL over the nodes below, and the keys by which it is maintained.

The SQL of a node reads views named after its children, so that Spark runs the same text over a few rows or
over all of them. `plan/derived/build.py` builds the tree without Spark, and `engine/inputs/evaluation.py`
evaluates it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from velostream.plan.steps import Step


INNER = "JOIN"
"""How SQL writes an inner join."""


@dataclass(frozen=True, eq=False)
class Node:
    """A relation: the name of the view that holds its rows for the SQL above, and its columns."""

    view: str
    columns: tuple[str, ...]

    @property
    def below(self) -> tuple[Node, ...]:
        """The child nodes."""
        return ()


@dataclass(frozen=True, eq=False)
class Scan(Node):
    """Scan of an input. Each use of an input is a scan of its own, since each is restricted by other keys."""

    relation: str


@dataclass(frozen=True, eq=False)
class Each(Node):
    """Stateless: each row is filtered, projected or exploded by itself.

    `origin` maps columns that pass unchanged to columns of the child.
    """

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
    """Whether an outer join fills this side's columns with nulls in rows without a match."""


@dataclass(frozen=True, eq=False)
class Keyed(Node):
    """Keyed: the rows of one key depend only on the rows of that key in every child.

    Joins, groups, OVER and set operations are keyed. A node without keys is one group of everything and is
    recomputed as a whole.
    """

    sql: str
    sides: tuple[Side, ...]
    origin: Mapping[str, tuple[int, str]]
    """Columns passed on unchanged: the side, and the column of that side."""
    step: Step
    nulls_meet: tuple[bool, ...] = ()
    """For each key column, whether null equals null. Where it does not, rows with a null key match nothing.
    """
    word: str = field(default="")
    """How SQL writes the join; empty where the node is no join."""

    @property
    def below(self) -> tuple[Node, ...]:
        """The children."""
        return tuple(side.node for side in self.sides)

    @property
    def keyed(self) -> bool:
        """Whether the node has keys, so that it is maintained by affected keys."""
        return bool(self.sides[0].keys)


def walk(node: Node) -> Iterator[Node]:
    """Every node of the tree, children before parents."""
    for child in node.below:
        yield from walk(child)
    yield node
