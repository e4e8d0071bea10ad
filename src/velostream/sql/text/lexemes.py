"""Lexical scan of a text: strings, comments, URIs, variables and semicolons.

sqlglot's tokenizer cannot do this, because inside a bare URI `//`, `--` and `/*` are text, and because
`${NAME}` must be replaced before anything is parsed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from velostream.errors import SqlSyntaxError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from velostream.location import SourceText

_INTERESTING = re.compile(
    r"""(?P<comment>--|/\*(?!\+))
      | (?P<quote>['"`])
      | (?P<semicolon>;)
      | (?P<uri>(?<![\w.$}])[A-Za-z][A-Za-z0-9+.-]*://)
      | (?P<variable>\$\{)
      | (?P<jinja>\{[{%#])
      | (?P<private>\ue000)
    """,
    re.VERBOSE,
)
_URI_STEP = re.compile(r"""[^\s;(),{}=]+|=["']?|[;(),{}]|\s""")
_RAW_PREFIX = re.compile(r"(?<!\w)[rR]$")


class Kind(Enum):
    """The kind of a lexeme."""

    STRING = auto()
    COMMENT = auto()
    URI = auto()
    VARIABLE = auto()
    SEMICOLON = auto()


@dataclass(frozen=True)
class Lexeme:
    """One stretch of the text that is not plain SQL."""

    kind: Kind
    start: int
    end: int


def scan(source: SourceText, errors: list[SqlSyntaxError] | None = None) -> Iterator[Lexeme]:
    """The lexemes in order; between them is plain SQL.

    An unterminated string or comment is reported to `errors` (or raised) and extends to the end of the text.
    """
    text, position = source.text, 0
    while match := _INTERESTING.search(text, position):
        start = match.start()
        if match["jinja"] or match["private"]:
            _report(source, errors, f'"{match[0]}" has no meaning in SQL', start, match.end())
            position = match.end()
            continue
        kind, position = _lexeme(source, match, errors)
        yield Lexeme(kind, start, position)


def _lexeme(
    source: SourceText, match: re.Match[str], errors: list[SqlSyntaxError] | None
) -> tuple[Kind, int]:
    text, start = source.text, match.start()
    if match["comment"]:
        return Kind.COMMENT, _comment_end(source, start, errors)
    if match["quote"]:
        return Kind.STRING, _quote_end(source, start, errors)
    if match["uri"]:
        return Kind.URI, uri_end(text, match.end())
    if match["variable"]:
        return Kind.VARIABLE, _variable_end(source, start, errors)
    return Kind.SEMICOLON, match.end()


def _report(
    source: SourceText, errors: list[SqlSyntaxError] | None, message: str, start: int, end: int
) -> None:
    error = SqlSyntaxError(message, location=source.location(start, end))
    if errors is None:
        raise error
    errors.append(error)


def _comment_end(source: SourceText, start: int, errors: list[SqlSyntaxError] | None) -> int:
    text = source.text
    if text.startswith("--", start):
        end = text.find("\n", start)
        return len(text) if end < 0 else end
    depth, position = 1, start + 2
    while match := re.compile(r"/\*|\*/").search(text, position):
        depth += 1 if match[0] == "/*" else -1
        position = match.end()
        if not depth:
            return position
    _report(source, errors, "comment is not closed", start, start + 2)
    return len(text)


def _quote_end(source: SourceText, start: int, errors: list[SqlSyntaxError] | None) -> int:
    text, quote = source.text, source.text[start]
    raw = quote == "`" or bool(_RAW_PREFIX.search(text, max(0, start - 2), start))
    position = start + 1
    while position < len(text):
        char = text[position]
        if char == "\\" and not raw:
            position += 2
        elif char != quote:
            position += 1
        elif text.startswith(quote, position + 1):
            position += 2
        else:
            return position + 1
    _report(source, errors, f"{quote} is not closed", start, start + 1)
    return len(text)


def _variable_end(source: SourceText, start: int, errors: list[SqlSyntaxError] | None) -> int:
    text = source.text
    end = text.find("}", start)
    if end < 0 or "\n" in text[start:end]:
        _report(source, errors, "${ is not closed", start, start + 2)
        return start + 2
    # `${BASE}/*.csv` is part of a URI, not the start of a comment.
    return uri_end(text, end + 1) if text.startswith("/", end + 1) else end + 1


def uri_end(text: str, position: int) -> int:
    """The end of a URI: white space, `;`, or a parenthesis or `,` outside quotes and braces."""
    braces = 0
    while match := _URI_STEP.match(text, position):
        step = match[0]
        if step.isspace() or step == ";" or (step in "(),}" and not braces):
            break
        if step[0] == "=" and len(step) == 2:
            closing = _closing_quote(text, match.end(), step[1])
            if closing < 0:
                break
            position = closing
            continue
        braces += (step == "{") - (step == "}")
        position = match.end()
    return position


def _closing_quote(text: str, position: int, quote: str) -> int:
    while position < len(text):
        if text[position] == "\\":
            position += 2
        elif text[position] == quote:
            return position + 1
        else:
            position += 1
    return -1
