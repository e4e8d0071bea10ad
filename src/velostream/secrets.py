"""Redaction of secrets: passwords and the like, in every text that leaves the process.

There is one definition of what is a secret (`secret`), and functions that remove secrets from texts. A text
is searched for the forms in which secrets are written: properties, URIs, JSON, headers, also misspelt and
incomplete ones. Messages of libraries may quote a password in a form of their own: so values that were seen
in a statement, or that a reference resolved to, are remembered and removed wherever they occur.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HIDDEN_VALUE = "***"
"""Replaces a secret."""

REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")
"""A secret by reference, resolved when a source is opened."""
_MAY_BE_SHOWN = re.compile(rf"{REFERENCE.pattern}|\$\{{\w+\}}|\$\{{kept-secret:\w+\}}")

# --- which names are names of secrets -----------------------------------------------------------------

_WITHIN = (
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "credential",
    "apikey",
    "privatekey",
    "accesskey",
    "accountkey",
    "sharedkey",
    "keystorekey",
    "signature",
    "authorization",
    "userinfo",
    "jaas",
    "cookie",
)
"""Names that contain one of these, whatever separates the letters, are names of secrets."""
_PARTS = frozenset({"pass", "pwd", "auth", "sig", "jwt", "headers", "bearer"})
"""So are names that have one of these between dots, dashes and underscores."""
_ABOUT = frozenset(
    {"url", "uri", "endpoint", "location", "path", "file", "provider", "source", "class", "type", "format"}
    | {"algorithm", "mechanism", "timeout", "interval", "enabled", "ms"}
)
"""Names that end with one of these say where a secret is, or of what kind."""
_SPELLINGS = ("password", "passphrase", "secret", "token", "credential", "credentials", "signature")
_ALIKE = 0.8


@lru_cache(maxsize=4096)
def secret(name: str) -> bool:
    """Whether a property of this name, possibly misspelt, holds a secret."""
    parts = [part for part in re.split(r"[^a-z0-9]+", name.lower()) if part]
    whole = "".join(parts)
    if not whole or parts[-1] in _ABOUT:
        return False
    if any(word in whole for word in _WITHIN) or not _PARTS.isdisjoint(parts):
        return True
    return any(get_close_matches(part, _SPELLINGS, n=1, cutoff=_ALIKE) for part in (*parts, whole))


# --- the forms in which secrets are written -----------------------------------------------------------

_QUOTED = r"""\\?(?P<quote>['"])(?P<value>(?:\\.|(?P=quote){2}|(?!(?P=quote)).)*+)(?:(?P=quote)|\Z)"""
"""A value in quotes; an unclosed one extends to the end."""
_NAME = r"""(?P<mark>\\?['"`])(?P<name>[^'"`\\\n]+)(?P=mark)"""
_BARE_NAME = r"""(?<![\w.'"`?&-])(?P<name>[A-Za-z_][\w.-]*)"""
_PROPERTY = re.compile(rf"{_NAME}\s*[=:]\s*{_QUOTED}", re.DOTALL)
_VALUE_WITHOUT_QUOTES = re.compile(rf"""{_NAME}[ \t]*[=:][ \t]*(?P<value>[^\s'"\\][^\n]*)""")
_WITHOUT_QUOTES = re.compile(rf"""(?<=[(,])\s*{_BARE_NAME}[ \t]*=[ \t]*(?P<value>[^\s'"][^\n]*)""")
_NAME_WITHOUT_QUOTES = re.compile(rf"(?<=[(,])\s*{_BARE_NAME}[ \t]*=[ \t]*{_QUOTED}", re.DOTALL)
_SETTING = re.compile(rf"""{_BARE_NAME}\s?=\s?(?:{_QUOTED}|(?P<bare>[^\s'",;)}}\]]+))""")
_HEADER = re.compile(r"(?P<name>(?i:authorization|cookie|x-api-key)):[ \t]*(?P<value>[^\r\n'\"]+)")
_NO_SIGN = re.compile(rf"{_NAME}\s*{_QUOTED}", re.DOTALL)
_STATEMENT = (_PROPERTY,)
_DRAFT = (_PROPERTY, _NO_SIGN, _VALUE_WITHOUT_QUOTES, _NAME_WITHOUT_QUOTES, _WITHOUT_QUOTES)
_TEXT = (_PROPERTY, _VALUE_WITHOUT_QUOTES, _SETTING, _HEADER)
_SCHEME = re.compile(
    r"(?<![\w+.-])(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>(?:[^\s'\"`<>]|['\"`<>](?![\s,;:.)\]}]|\Z))*)"
)
_QUERY = re.compile(r"\?[A-Za-z_][\w.-]*=")
_PARAMETER = re.compile(r"""([?&])([^=&?\s'"]+)=(\\?"[^"]*"?|'[^']*'?|[^&\s'"]*)""")
_NO_PORT = re.compile(r":(?!\d+(?:[/,?]|\Z))")
_OF_PATHS = frozenset({"file", "s3", "s3a", "delta"})
"""Schemes whose paths may contain an @."""

_USER = re.compile(r"[\w.+-]{1,24}")

_known: dict[str, None] = {}
_MOST_KNOWN = 1000
_lock = Lock()
_known_pattern: list[re.Pattern[str] | None] = [None]


def redact(text: str) -> str:
    """Any text without its secrets: a message, a log line, a stack trace. References stay as written."""
    return _without_known(redact_uri(_without(_TEXT, text, _three)), _three) if text else text


def redact_statement(text: str) -> str:
    """A valid statement, for display: what looks like a property without quotes is none."""
    return with_secrets(text, _three)


def redact_draft(text: str) -> str:
    """Statements as typed, mistakes and all, with secrets masked; everything keeps its place."""
    found = redact_uri(_without(_DRAFT, text, _stars), same_length=True)
    return _without_known(found, _stars)


def _without(forms: Sequence[re.Pattern[str]], text: str, hidden: Callable[[str], str]) -> str:
    def value(match: re.Match[str]) -> str:
        group = "value" if match["value"] is not None else "bare"
        if not secret(match["name"]):
            # It may be JSON, with secrets of its own.
            inside = _without(forms, match[group], hidden) if len(match[group]) > 2 else match[group]
        else:
            inside = _unless_harmless(match[group], hidden)
        start, end = (place - match.start() for place in match.span(group))
        return f"{match[0][:start]}{inside}{match[0][end:]}"

    if "=" in text or ":" in text:
        for form in forms:
            text = form.sub(value, text)
    return text


def _without_known(text: str, hidden: Callable[[str], str]) -> str:
    known = _known_pattern[0]
    return known.sub(lambda match: hidden(match[0]), text) if known is not None else text


def with_secrets(text: str, hidden: Callable[[str], str]) -> str:
    """A valid statement with each secret replaced by the result of `hidden`."""
    return _without_uris(_without(_STATEMENT, text, hidden), hidden)


def redact_uri(text: str, *, same_length: bool = False) -> str:
    """`text` without the user, the password and the secret parameters of any URI in it."""
    return _without_uris(text, _stars if same_length else _three)


def _without_uris(text: str, hidden: Callable[[str], str]) -> str:
    if "://" not in text:
        return text

    def parameter(match: re.Match[str]) -> str:
        if not secret(match[2]) or _harmless(match[3].strip("\\\"'")):
            return match[0]
        return f"{match[1]}{match[2]}={hidden(match[3])}"

    def user(match: re.Match[str]) -> str:
        end = _user_end(match["scheme"].lower(), match["rest"])
        if end <= 0:
            return match[0]
        name, colon, password = match["rest"][:end].partition(":")
        # A long user name, or one without a password, may be a token.
        first = name if password and _USER.fullmatch(name) else _unless_harmless(name, hidden)
        second = _unless_harmless(password, hidden)
        return f"{match['scheme']}://{first}{colon}{second}{match['rest'][end:]}"

    return _PARAMETER.sub(parameter, _SCHEME.sub(user, text))


def _user_end(scheme: str, rest: str) -> int:
    """The end of user and password of a URI; they may contain any character, even those that end a host."""
    if rest.startswith("/"):
        return 0
    query = _QUERY.search(rest)
    end = rest.rfind("@", 0, query.start() if query else len(rest))
    if end < 0 and query and _NO_PORT.search(rest[: query.start()]) and scheme not in ("sql", "jdbc"):
        end = rest.rfind("@")
    if "/" in rest[: max(end, 0)] and scheme in _OF_PATHS and ":" not in rest[:end]:
        return 0
    return end


def _harmless(value: str) -> bool:
    """Whether a value is a reference, or a placeholder for one: an ellipsis, or stars."""
    return _MAY_BE_SHOWN.fullmatch(value) is not None or not any(char.isalnum() for char in value)


def _unless_harmless(value: str, hidden: Callable[[str], str]) -> str:
    return value if _harmless(value) else hidden(value)


def _three(_: str) -> str:
    return HIDDEN_VALUE


def _stars(value: str) -> str:
    return re.sub(r"[^\r\n]", "*", value)


# --- values that were seen ----------------------------------------------------------------------------


def learn(text: str) -> None:
    """Remember the secrets that are written out in statements."""
    found: list[str] = []

    def seen(value: str) -> str:
        found.append(value)
        return value

    _without(_DRAFT, text, seen)
    if "://" in text:
        for match in _SCHEME.finditer(text):
            found += match["rest"][: max(_user_end(match["scheme"].lower(), match["rest"]), 0)].split(":", 1)
        found += [match[3].strip("\\\"'") for match in _PARAMETER.finditer(text) if secret(match[2])]
    for each in found:
        learn_value(each)


def learn_value(value: str) -> None:
    """Remember a secret, unless it is a word that may well occur in other texts."""
    if not _telling(value) or value in _known:
        return
    with _lock:
        while len(_known) >= _MOST_KNOWN:
            del _known[next(iter(_known))]
        _known[value] = None
        longest = sorted(_known, key=len, reverse=True)
        _known_pattern[0] = re.compile("|".join(map(re.escape, longest)))


def _telling(value: str) -> bool:
    plain = value.isalpha() or value.isdigit()
    return not _harmless(value) and (len(value) >= 16 or (len(value) >= 6 and not plain))
