"""Splits a file into statements: variables replaced, URIs set aside, split at semicolons.

Every piece can be mapped back to the characters that the user wrote.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.errors import SqlError, SqlSyntaxError, UnknownNameError, VelostreamError, did_you_mean
from velostream.location import Location, SourceText
from velostream.secrets import learn
from velostream.sql.text.lexemes import Kind, Lexeme, scan
from velostream.sql.text.origins import Rewriter, Rewritten

if TYPE_CHECKING:
    from collections.abc import Mapping

URI_MARK = "\ue000"
"""First character of the identifier that stands for a bare URI while sqlglot parses."""

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_LATER = ("env:", "file:")
"""References that stay in the text until a source is opened, so that no secret is ever stored."""


@dataclass(frozen=True)
class Piece:
    """One statement's text as sqlglot sees it, with the URIs that were set aside."""

    source: SourceText
    text: str
    uris: tuple[str, ...]
    _offset: int
    _marked: Rewritten
    _substituted: Rewritten

    def location(self, start: int, end: int) -> Location:
        """The location in the user's text of the characters from `start` up to `end` of this piece."""
        marked = self._marked.origin(self._offset + start, self._offset + end)
        return self.source.location(*self._substituted.origin(*marked))


@dataclass(frozen=True)
class Script:
    """The pieces of a text, and the errors found before parsing."""

    pieces: tuple[Piece, ...]
    errors: tuple[VelostreamError, ...]


def split(source: SourceText, environment: Mapping[str, str] | None = None) -> Script:
    """Replace variables, set URIs aside, and split at semicolons outside of strings, comments and URIs."""
    errors: list[VelostreamError] = []
    substituted = _substitute(source, os.environ if environment is None else environment, errors)
    learn(substituted.text)
    inner = SourceText(substituted.text, source.name)
    lexical: list[SqlSyntaxError] = []
    lexemes = list(scan(inner, lexical))
    for error in lexical:
        place = error.location
        if place is not None:
            error.location = source.location(*substituted.origin(place.start, place.end))
        errors.append(error)
    marked, uris, cuts = _set_aside(inner.text, lexemes)
    pieces, start = [], 0
    for cut in (*cuts, len(marked.text)):
        text = marked.text[start:cut]
        pieces.append(Piece(source, text, uris, start, marked, substituted))
        start = cut + 1
    return Script(tuple(pieces), tuple(_unique(errors)))


def _unique(errors: list[VelostreamError]) -> list[VelostreamError]:
    seen: dict[tuple[str, int], VelostreamError] = {}
    for error in errors:
        seen.setdefault((error.message, error.location.start if error.location else -1), error)
    return list(seen.values())


def _set_aside(text: str, lexemes: list[Lexeme]) -> tuple[Rewritten, tuple[str, ...], list[int]]:
    rewriter, shift = Rewriter(text), 0
    uris: list[str] = []
    cuts: list[int] = []
    for lexeme in lexemes:
        if lexeme.kind is Kind.SEMICOLON:
            cuts.append(lexeme.start + shift)
        elif lexeme.kind is Kind.URI:
            mark = f"`{URI_MARK}{len(uris)}`"
            uris.append(text[lexeme.start : lexeme.end])
            rewriter.replace(lexeme.start, lexeme.end, mark)
            shift += len(mark) - (lexeme.end - lexeme.start)
    return rewriter.finish(), tuple(uris), cuts


def _substitute(
    source: SourceText, environment: Mapping[str, str], errors: list[VelostreamError]
) -> Rewritten:
    rewriter = Rewriter(source.text)
    if "${" not in source.text:
        return rewriter.finish()
    lexical: list[SqlSyntaxError] = []
    for lexeme in scan(source, lexical):
        if lexeme.kind in (Kind.COMMENT, Kind.SEMICOLON):
            continue
        quote = source.text[lexeme.start] if lexeme.kind is Kind.STRING else ""
        for match in _VARIABLE.finditer(source.text, lexeme.start, lexeme.end):
            if match[1].startswith(_LATER):
                continue
            try:
                value = _value(match[1], environment)
            except SqlError as error:
                errors.append(error.at(source.location(match.start(), match.end())))
                value = "NULL"
            rewriter.replace(match.start(), match.end(), _quoted(value, quote))
    errors.extend(lexical)
    return rewriter.finish()


def _value(reference: str, environment: Mapping[str, str]) -> str:
    name, colon, default = reference.partition(":")
    if not _NAME.match(name):
        raise SqlSyntaxError(
            f'"${{{reference}}}" is not a variable',
            hint="write ${NAME}, ${NAME:default}, ${env:NAME} or ${file:path}",
        )
    if name in environment:
        return environment[name]
    if colon:
        return default
    raise UnknownNameError(
        f'environment variable "{name}" is not set',
        hint=did_you_mean(name, environment) or f"set it, or give a default: ${{{name}:default}}",
    )


def _quoted(value: str, quote: str) -> str:
    """A value escaped for use inside a string, so that it cannot end the string."""
    if quote == "`":
        return value.replace("`", "``")
    if quote:
        return value.replace("\\", "\\\\").replace(quote, "\\" + quote)
    return value
