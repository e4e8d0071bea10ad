"""What must never be shown: passwords and the like in statements and URIs."""

from __future__ import annotations

import re

HIDDEN_VALUE = "***"
"""What stands in place of a secret wherever properties are shown."""

_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)?$|secret|token$|credential|api[._-]?key|private[._-]?key|access[._-]?key$"
    r"|jaas|^auth$|authorization|\.key\.password$|^headers$",
    re.IGNORECASE,
)
REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")
_PROPERTY = re.compile(
    r"""(?P<before>(?P<mark>['"`])(?P<name>[^'"`]+)(?P=mark)\s*=\s*)"""
    r"""(?P<quote>['"])(?P<value>(?:\\.|(?P=quote){2}|(?!(?P=quote)).)*)(?P=quote)""",
    re.DOTALL,
)
_USER_INFO = re.compile(r"(?<=://)([^/@\s:]*):([^/@\s]+)@")
_URI_PARAMETER = re.compile(r"([?&])([^=&?\s]+)=(\"[^\"]*\"|'[^']*'|[^&\s]*)")


def secret(name: str) -> bool:
    """Whether a property of this name holds something that must never be shown."""
    return _SECRET_NAME.search(name) is not None


def redact(text: str, *, same_length: bool = False) -> str:
    """A statement for display: secrets hidden in its properties and URIs; references stay as written.

    With `same_length` everything else keeps its place, so that a caret still points at it.
    """

    def value(match: re.Match[str]) -> str:
        if not secret(match["name"]) or REFERENCE.fullmatch(match["value"]):
            return match[0]
        return f"{match['before']}{match['quote']}{_hidden(match['value'], same_length)}{match['quote']}"

    return redact_uri(_PROPERTY.sub(value, text), same_length=same_length)


def _hidden(value: str, same_length: bool) -> str:
    return re.sub(r"[^\r\n]", "*", value) if same_length else HIDDEN_VALUE


def redact_uri(text: str, *, same_length: bool = False) -> str:
    """`text` with the passwords of any URI in it hidden."""
    if "://" not in text:
        return text

    def parameter(match: re.Match[str]) -> str:
        if not secret(match[2]) or REFERENCE.fullmatch(match[3].strip("\"'")):
            return match[0]
        return f"{match[1]}{match[2]}={_hidden(match[3], same_length)}"

    def user(match: re.Match[str]) -> str:
        return f"{match[1]}:{_hidden(match[2], same_length)}@"

    return _URI_PARAMETER.sub(parameter, _USER_INFO.sub(user, text))
