"""Locations in the user's text."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from velostream.secrets import redact_draft


@dataclass(frozen=True)
class SourceText:
    """One text of SQL: a file, a REPL line, an argument of `db.sql`."""

    text: str
    name: str = "<sql>"
    _hidden: set[tuple[int, int]] = field(default_factory=set, repr=False, compare=False)

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        """Offset of the first character of each line."""
        return (0, *(i + 1 for i, c in enumerate(self.text) if c == "\n"))

    def hide(self, start: int, end: int) -> None:
        """Never show these characters: they may be a secret although their form does not show it."""
        self._hidden.add((start, end))

    @property
    def shown(self) -> str:
        """The text with secrets masked, everything else in its place."""
        shown = redact_draft(self.text)
        for start, end in self._hidden:
            shown = f"{shown[:start]}{'*' * (end - start)}{shown[end:]}"
        return shown

    def location(self, start: int, end: int | None = None) -> Location:
        """The location of the characters from `start` up to, not including, `end`."""
        return Location(self, start, start + 1 if end is None else end)


@dataclass(frozen=True)
class Location:
    """A range of characters in a text. Ignored by equality: statements may differ only in place."""

    source: SourceText = field(repr=False)
    start: int
    end: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location)

    def __hash__(self) -> int:
        return 0

    @property
    def line(self) -> int:
        """1-based line."""
        from bisect import bisect_right

        return bisect_right(self.source.line_starts, self.start)

    @property
    def column(self) -> int:
        """1-based column."""
        return self.start - self.source.line_starts[self.line - 1] + 1

    @property
    def text(self) -> str:
        """The characters themselves."""
        return self.source.text[self.start : self.end]

    @property
    def shown(self) -> str:
        """The characters, with secrets masked."""
        return self.source.shown[self.start : self.end]

    def hide(self) -> None:
        """Never show the characters."""
        self.source.hide(self.start, self.end)

    def caret(self) -> str:
        """The line with a caret under the range; secrets are masked."""
        first = self.source.line_starts[self.line - 1]
        line = self.source.shown[first:].split("\n", 1)[0].rstrip("\r")
        width = max(1, min(self.end, first + len(line)) - self.start)
        lead = "".join("\t" if c == "\t" else " " for c in line[: self.column - 1])
        gutter = f"{self.line} | "
        return f"{gutter}{line}\n{' ' * (len(gutter) - 2)}| {lead}{'^' * width}"

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"
