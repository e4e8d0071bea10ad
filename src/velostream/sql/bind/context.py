"""Context of binding one statement: its text, the catalogue, and the errors found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from velostream.errors import VelostreamError
from velostream.sql.known_relations import unasked
from velostream.sql.text.node_locations import locate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlglot import exp

    from velostream.location import Location, SourceText
    from velostream.model.statements import SourceRef
    from velostream.sql.known_relations import Connectors, Discover, Relation
    from velostream.sql.text.script import Piece


@dataclass
class Context:
    """One statement while it is bound. Errors are collected, so that one run shows all of them."""

    piece: Piece
    location: Location
    end: int
    lookup: Callable[[str], Relation | None]
    names: Callable[[], Iterable[str]]
    connectors: Connectors
    udfs: frozenset[str]
    discover: Discover = unasked
    errors: list[VelostreamError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    """UDFs that the statement calls."""
    guessed: bool = False
    """Whether an error would say more if the columns of its sources were known."""

    @property
    def source(self) -> SourceText:
        """The user's whole text."""
        return self.piece.source

    def report(self, error: VelostreamError, node: exp.Expr | None = None) -> None:
        """Collect an error, located at a node if it has no location of its own."""
        if node is not None:
            error.at(self.place(node))
        error.at(self.location)
        if all(known.message != error.message or _start(known) != _start(error) for known in self.errors):
            self.errors.append(error)

    def reported_at(self, node: exp.Expr) -> bool:
        """Whether an error was reported at a node."""
        place = self.place(node)
        return place is not None and any(_start(known) == place.start for known in self.errors)

    def discovered(self, ref: SourceRef) -> tuple[str, ...] | None:
        """The columns that a source tells of itself; that it cannot be reached is reported.

        None where they are not known, and where something about the statement is wrong already.
        """
        if self.errors:
            return None
        try:
            found = self.discover(ref)
        except VelostreamError as error:
            self.report(error.at(ref.location))
            return None
        return tuple(found) if found is not None else None

    def place(self, node: exp.Expr) -> Location | None:
        """The location of a node in the text."""
        return locate(node, self.source, self.location)


def _start(error: VelostreamError) -> int:
    return error.location.start if error.location is not None else -1
