"""SQL that users write in properties, looked at before any server sees it.

For databases that may run several statements where one is sent: a text may not end the brackets that it will
stand in, nor a statement. Where quotes and comments end depends on the database, and on its settings: a text
is read in every way that there is, and refused where one of them finds more than it has to be.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from velostream.connectors.databases.options import DatabaseOptions

_DOLLARS = re.compile(r"\$\w*\$")
_COMMENT = re.compile(r"/\*|\*/")
_LINE_COMMENT = re.compile(r"--[^\n]*")
_PLAIN, _ESCAPED, _MARKED = "plain", "escaped", "escaped where E stands before"


@dataclass(frozen=True)
class _Way:
    """How a database reads quotes and comments."""

    backslashes: str = _PLAIN
    """Whether a backslash in quotes escapes what follows."""
    hashes: bool = False
    """Whether # begins a comment."""
    nested: bool = False
    """Whether comments stand in comments."""
    dollars: bool = False
    """Whether $$ is a quote."""
    blank_after_dashes: bool = False
    """Whether -- begins a comment only before a blank."""
    run_comments: bool = False
    """Whether what stands between /*! and */ is run."""
    backticks: bool = False
    """Whether ` is a quote."""
    square: bool = False
    """Whether [ and ] are quotes."""


def check_user_sql(options: DatabaseOptions) -> None:
    """Refuse properties whose SQL is more than a condition, an order, or a query."""
    for name, text in (("where", options.where), ("order.by", options.order_by)):
        if text is not None:
            _check(name, text)
    for name, text in (("query", options.query), ("poll.query", options.poll_query)):
        if text is not None:
            _check(name, text.rstrip().rstrip(";"))


def _check(name: str, text: str) -> None:
    for way in _ways(text):
        wrong = _ends(text, way)
        if wrong is not None:
            raise SourceConfigError(
                f'"{name}" = "{text}" {wrong}',
                hint="it has to be one, whichever way its quotes and comments are read",
            )


def _ways(text: str) -> Iterator[_Way]:
    """The ways that may make a difference."""
    both, only = (False, True), (False,)
    return (
        _Way(*each)
        for each in itertools.product(
            (_PLAIN, _ESCAPED, _MARKED) if "\\" in text else (_PLAIN,),
            both if "#" in text else only,
            both if text.count("/*") > 1 else only,
            both if "$" in text else only,
            both if "--" in text else only,
            both if "/*!" in text or "/*M!" in text else only,
            both if "`" in text else only,
            both if "[" in text else only,
        )
    )


def _ends(text: str, way: _Way) -> str | None:
    """What is wrong with a text that is read in one way."""
    reading, depth, at = _Reading(text, way), 0, 0
    while at < len(text):
        after = reading.skipped(at)
        if after > at:
            at = after
            continue
        if text[at] == ";":
            return "is more than one statement"
        depth += (text[at] == "(") - (text[at] == ")")
        if depth < 0:
            return 'has a ")" that no "(" belongs to'
        at += 1
    return None


class _Reading:
    """Finds where quotes and comments end."""

    def __init__(self, text: str, way: _Way) -> None:
        self._text, self._way = text, way
        self._last = 0, False
        """Where the last quote ended, and whether it was one with E."""

    def skipped(self, at: int) -> int:
        """Where a quote or comment ends that begins here; the same place where none begins."""
        text, way = self._text, self._way
        mark = text[at]
        if mark in "'\"" or (mark == "`" and way.backticks):
            return self._quote_end(at, mark)
        if mark == "[" and way.square:
            return self._after("]", at + 1)
        if mark == "$" and way.dollars and (found := _DOLLARS.match(text, at)) is not None:
            return self._after(found[0], found.end())
        if mark == "#" and way.hashes:
            return self._after("\n", at)
        if text.startswith("--", at) and (not way.blank_after_dashes or not text[at + 2 : at + 3].strip()):
            return self._after("\n", at)
        if text.startswith("/*", at):
            if way.run_comments and text.startswith(("/*!", "/*M!"), at):
                return at + 3
            return self._comment_end(at)
        return at + 2 if way.run_comments and text.startswith("*/", at) else at

    def _quote_end(self, at: int, mark: str) -> int:
        text, escapes = self._text, self._escapes(at, mark)
        end = at + 1
        while end < len(text):
            if (escapes and text[end] == "\\") or text.startswith(mark * 2, end):
                end += 2
            elif text[end] == mark:
                break
            else:
                end += 1
        self._last = end + 1, escapes
        return min(end + 1, len(text))

    def _escapes(self, at: int, mark: str) -> bool:
        """Whether a backslash escapes in a quote that begins here."""
        if self._way.backslashes != _MARKED or mark != "'":
            return self._way.backslashes == _ESCAPED and mark != "`"
        end, escaped = self._last
        between = self._text[end:at]
        if "\n" in between and not _LINE_COMMENT.sub("", between).strip():
            return escaped  # on the next line, a quote goes on as it began
        return self._text[max(at - 1, 0) : at] in ("e", "E")

    def _comment_end(self, at: int) -> int:
        depth = 0
        for found in _COMMENT.finditer(self._text, at):
            depth += 1 if found[0] == "/*" else -1
            if depth == 0 or (found[0] == "*/" and not self._way.nested):
                return found.end()
        return len(self._text)

    def _after(self, mark: str, start: int) -> int:
        found = self._text.find(mark, start)
        return len(self._text) if found < 0 else found + len(mark)
