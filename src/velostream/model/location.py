"""Where in the user's text something stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from velostream.model.secrets import redact


@dataclass(frozen=True)
class SourceText:
    """One text of SQL: a file, a REPL line, an argument of `db.sql`."""

    text: str
    name: str = "<sql>"

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        """Offset of the first character of each line."""
        return (0, *(i + 1 for i, c in enumerate(self.text) if c == "\n"))

    def location(self, start: int, end: int | None = None) -> Location:
        """The place of the characters from `start` up to, not including, `end`."""
        return Location(self, start, start + 1 if end is None else end)


@dataclass(frozen=True)
class Location:
    """A range of characters in a text. Equality ignores it: two models may differ only in place."""

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

    def caret(self) -> str:
        """The line with a caret under the range; passwords in it are hidden."""
        first = self.source.line_starts[self.line - 1]
        shown = redact(self.source.text, same_length=True)
        line = shown[first:].split("\n", 1)[0].rstrip("\r")
        width = max(1, min(self.end, first + len(line)) - self.start)
        lead = "".join("\t" if c == "\t" else " " for c in line[: self.column - 1])
        gutter = f"{self.line} | "
        return f"{gutter}{line}\n{' ' * (len(gutter) - 2)}| {lead}{'^' * width}"

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"
