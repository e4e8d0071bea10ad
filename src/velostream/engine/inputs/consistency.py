"""Consistent positions: tables derived from one table are read where they contain the same version of it.

Otherwise a join of two tables over one source would show, for a moment, a state that never existed.
"""

from __future__ import annotations

from itertools import islice, product
from typing import TYPE_CHECKING, Any

from velostream.model.columns import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from velostream.model.changes import Commit, Offset, SourceOffsets

VERSION = "version"
BASES = "bases"
_MOST_TRIES = 1000


def bases_of(commit: Commit | None) -> dict[str, int]:
    """The version of every table, direct or indirect, that a commit contains.

    Tables that a job keeps as its own state are left out: other jobs have some of the same name.
    """
    found: dict[str, int] = {}
    for name, offset in (commit.offsets if commit is not None else {}).items():
        if VERSION in offset:
            own = {} if name.startswith(HIDDEN) else {name: int(offset[VERSION])}
            found |= {**own, **offset.get(BASES, {})}
    return found


def belong_together(offsets: Mapping[str, Offset]) -> bool:
    """Whether no two inputs contain different versions of one table."""
    known: dict[str, Any] = {}
    for name, offset in offsets.items():
        if VERSION not in offset:
            continue
        for base, version in {**offset.get(BASES, {}), name: offset[VERSION]}.items():
            if known.setdefault(base, version) != version:
                return False
    return True


def newest_cut(candidates: Mapping[str, Sequence[Offset]]) -> SourceOffsets | None:
    """The newest consistent positions, chosen from those of each input (newest first); None without any."""
    for choice in _newest_first([len(each) for each in candidates.values()]):
        cut = {
            name: offsets[number] for (name, offsets), number in zip(candidates.items(), choice, strict=True)
        }
        if belong_together(cut):
            return cut
    return None


def _newest_first(lengths: Sequence[int]) -> Iterable[tuple[int, ...]]:
    choices = islice(product(*(range(length) for length in lengths)), _MOST_TRIES)
    return sorted(choices, key=sum)
