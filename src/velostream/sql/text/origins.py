"""Rewritten text, with a map from each character back to its origin."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass
class Rewriter:
    """Builds a text out of copied and replaced stretches and records their origin."""

    text: str
    _parts: list[str] = field(default_factory=list)
    _starts: list[int] = field(default_factory=lambda: [0])
    _origins: list[tuple[int, int, bool]] = field(default_factory=list)
    _done: int = 0
    _length: int = 0

    def replace(self, start: int, end: int, replacement: str) -> None:
        """Replace the characters from `start` to `end`; calls go left to right."""
        self._add(self._done, start, self.text[self._done : start], copied=True)
        self._add(start, end, replacement, copied=False)
        self._done = end

    def finish(self) -> Rewritten:
        """The rewritten text."""
        self._add(self._done, len(self.text), self.text[self._done :], copied=True)
        return Rewritten("".join(self._parts), tuple(self._starts), tuple(self._origins), len(self.text))

    def _add(self, start: int, end: int, text: str, *, copied: bool) -> None:
        if not text:
            return
        self._parts.append(text)
        self._origins.append((start, end, copied))
        self._length += len(text)
        self._starts.append(self._length)


@dataclass(frozen=True)
class Rewritten:
    """A rewritten text; `origin` maps a range of it to a range of the original."""

    text: str
    starts: tuple[int, ...]
    origins: tuple[tuple[int, int, bool], ...]
    length: int

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """The range that the characters from `start` up to `end` came from."""
        return self._one(start, last=False), self._one(max(start, end - 1), last=True)

    def _one(self, position: int, *, last: bool) -> int:
        piece = bisect_right(self.starts, position) - 1
        if piece >= len(self.origins):
            return self.length
        start, end, copied = self.origins[piece]
        if copied:
            return start + position - self.starts[piece] + (1 if last else 0)
        return end if last else start
