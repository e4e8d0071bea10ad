"""What was probably meant where the text of a statement cannot be parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot.tokenizer_core import Token, TokenType

from velostream.errors import nearest
from velostream.sql.parse import elsewhere
from velostream.sql.text.script import URI_MARK

if TYPE_CHECKING:
    from collections.abc import Sequence

_CLAUSES = (
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "ORDER",
    "LIMIT",
    "JOIN",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "WINDOW",
    "EMIT",
    "WITH",
)
_EMITTED = ("CHANGES", "FINAL")
_ENDS_OPERAND = (
    TokenType.VAR,
    TokenType.IDENTIFIER,
    TokenType.R_PAREN,
    TokenType.STAR,
    TokenType.STRING,
    TokenType.NUMBER,
)
"""A word after one of these is an alias, or the misspelled word of a clause."""
_SCHEMES = frozenset({"file", "kafka", "http", "https", "s3", "gs", "az", "datagen", "delta", "iceberg"})
"""Schemes that are recognised without `//` where a text cannot be parsed."""


def misspelled(tokens: Sequence[Token], current: Token) -> tuple[Token, str] | None:
    """The word here, or the one before, which was read as an alias, if it looks like a clause's."""
    here = _index(tokens, current)
    for at in (here - 1, here):
        if at >= 0 and tokens[at].text.upper() == "EMIT" and at + 1 < len(tokens):
            word = tokens[at + 1]
            return word, nearest(word.text, _EMITTED) or _EMITTED[0]
    for at in (here - 1, here):
        token, follows = tokens[at], at > 0 and tokens[at - 1].token_type in _ENDS_OPERAND
        guess = nearest(token.text, _CLAUSES) if follows and token.token_type is TokenType.VAR else None
        # A longer word, such as orders, is a name.
        if guess is not None and not token.text.upper().startswith(guess):
            return token, guess
    return None


def source(tokens: Sequence[Token], current: Token, text: str) -> str | None:
    """A hint, where what stands after FROM, JOIN or INTO looks like a file or an address."""
    for token in reversed(tokens[: _index(tokens, current)]):
        if token.token_type in (TokenType.FROM, TokenType.JOIN, TokenType.INTO):
            words = text[token.end + 1 :].split(maxsplit=1)
            return elsewhere.source(words[0], _SCHEMES) if words and URI_MARK not in words[0] else None
    return None


def _index(tokens: Sequence[Token], current: Token) -> int:
    """The place of a token; 0 at the end of the statement."""
    return next((n for n, token in enumerate(tokens) if token is current), 0)
