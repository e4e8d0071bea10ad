"""Diff of two lists of records, in bounded time."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_COMPARED = 4_000_000
"""Above this many records between the common prefix and suffix, all of them count as replaced."""
_MOST_DEEP = 8
MOST_HUNKS = 2000
"""Above this many hunks, those closest to each other are joined."""


class Hunk(NamedTuple):
    """Records `first` up to `last` of the old list are replaced by `begin` up to `end` of the new one."""

    first: int
    last: int
    begin: int
    end: int


def differences(old: Sequence[bytes], new: Sequence[bytes]) -> list[Hunk]:
    """The hunks in order; records outside of them are equal and in the same order on both sides.

    A patience diff: records that occur exactly once on both sides, in the same order, are anchors; between
    anchors the same is done again. Repeated records are matched only next to other matches. The depth
    is bounded, so the cost is O(n log n), where a minimal diff may be quadratic.
    """
    found: list[Hunk] = []
    regions = [(Hunk(0, len(old), 0, len(new)), 0)]
    while regions:
        region, depth = regions.pop()
        region = _trimmed(old, new, region)
        if region.first == region.last and region.begin == region.end:
            continue
        anchors = list(_anchors(old, new, region)) if depth < _MOST_DEEP else []
        if not anchors:
            found.append(region)
            continue
        # A stack: the last region is handled first, so hunks are found from the end.
        first, begin = region.first, region.begin
        for at, place in [*anchors, (region.last, region.end)]:
            regions.append((Hunk(first, at, begin, place), depth + 1))
            first, begin = at + 1, place + 1
    return _few(found[::-1])


def _trimmed(old: Sequence[bytes], new: Sequence[bytes], region: Hunk) -> Hunk:
    first, last, begin, end = region
    while first < last and begin < end and old[first] == new[begin]:
        first, begin = first + 1, begin + 1
    while first < last and begin < end and old[last - 1] == new[end - 1]:
        last, end = last - 1, end - 1
    return Hunk(first, last, begin, end)


def _anchors(old: Sequence[bytes], new: Sequence[bytes], region: Hunk) -> Iterator[tuple[int, int]]:
    """Pairs of records that occur once on each side: the longest sequence in the same order on both."""
    first, last, begin, end = region
    if last == first or begin == end or last - first + end - begin > _MOST_COMPARED:
        return
    there = _once(new, begin, end)
    here = _once(old, first, last)
    pairs = [(at, there[record]) for record, at in here.items() if at >= 0 and there.get(record, -1) >= 0]
    # Longest increasing subsequence, by patience sorting.
    tops: list[int] = []
    top_pairs: list[int] = []
    before: list[int] = []
    for number, (_, place) in enumerate(pairs):
        pile = bisect_left(tops, place)
        before.append(top_pairs[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(place)
            top_pairs.append(number)
        else:
            tops[pile], top_pairs[pile] = place, number
    chain = []
    number = top_pairs[-1] if top_pairs else -1
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    yield from reversed(chain)


def _once(records: Sequence[bytes], begin: int, end: int) -> dict[bytes, int]:
    """The index of each record, in the order of first occurrence; -1 when it occurs more than once."""
    places: dict[bytes, int] = {}
    for number in range(begin, end):
        record = records[number]
        places[record] = -1 if record in places else number
    return places


def _few(hunks: list[Hunk]) -> list[Hunk]:
    if len(hunks) <= MOST_HUNKS:
        return hunks
    gaps = [after.first - before.last for before, after in pairwise(hunks)]
    widest = set(sorted(range(len(gaps)), key=gaps.__getitem__, reverse=True)[: MOST_HUNKS - 1])
    few = [hunks[0]]
    for number, hunk in enumerate(hunks[1:]):
        if number in widest:
            few.append(hunk)
        else:
            few[-1] = few[-1]._replace(last=hunk.last, end=hunk.end)
    return few
