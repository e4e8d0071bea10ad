"""Locations of tree nodes in the user's text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from velostream.location import Location, SourceText
    from velostream.sql.text.script import Piece

_START, _END = "start", "end"


def anchor(tree: exp.Expr, piece: Piece) -> None:
    """Turn sqlglot's offsets within the piece into offsets within the user's text."""
    for node in tree.walk():
        meta = node.meta
        if _START in meta and "anchored" not in meta:
            place = piece.location(meta[_START], meta[_END] + 1)
            meta[_START], meta[_END], meta["anchored"] = place.start, place.end, True


def span(node: exp.Expr) -> tuple[int, int] | None:
    """The first and last character of a node (end excluded), from it and its children."""
    starts, ends = [], []
    for child in node.walk():
        meta = child.meta
        if "anchored" in meta:
            starts.append(meta[_START])
            ends.append(meta[_END])
    return (min(starts), max(ends)) if starts else None


def locate(node: exp.Expr, source: SourceText, fallback: Location | None = None) -> Location | None:
    """The node's location in the user's text; else that of its nearest known ancestor, else `fallback`."""
    own = node.meta
    if isinstance(node, exp.Func) and "anchored" in own:
        return source.location(own[_START], own[_END])  # the function's name, without its arguments
    current: exp.Expr | None = node
    while current is not None:
        found = span(current)
        if found is not None:
            return source.location(*found)
        current = current.parent
    return fallback
