"""URIs in FROM and INTO."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from velostream.secrets import redact_uri

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_QUERY = re.compile(r"\?(?=[A-Za-z_][\w.-]*=)")
_PARAMETER = re.compile(r"""([^=&]+)(?:=("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^&]*))?(?:&|$)""")


@dataclass(frozen=True, repr=False)
class Uri:
    """A URI, split leniently: topics, globs and quoted SQL need no percent-encoding.

    `text` is as written; `str` is for display and hides passwords.
    """

    text: str

    @cached_property
    def scheme(self) -> str:
        """Lowercase scheme, `kafka` in `kafka://orders`; empty without one."""
        match = _SCHEME.match(self.text)
        return match[1].lower() if match else ""

    @cached_property
    def rest(self) -> str:
        """What follows `scheme://` (or `scheme:`), up to the `?`."""
        return self._split[0]

    @cached_property
    def parameters(self) -> dict[str, str]:
        """The part after `?`, quotes removed."""
        found: dict[str, str] = {}
        for match in _PARAMETER.finditer(self._split[1]):
            value = match[2] or ""
            if len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]:
                value = re.sub(r"\\(.)", r"\1", value[1:-1])
            found[match[1]] = value
        return found

    @cached_property
    def _split(self) -> tuple[str, str]:
        match = _SCHEME.match(self.text)
        body = self.text[match.end() :] if match else self.text
        body = body.removeprefix("//")
        # In a path, `?` is also a glob mark, and a password may have one; a query always starts with name=.
        query = _QUERY.search(body)
        return (body, "") if query is None else (body[: query.start()], body[query.end() :])

    def __str__(self) -> str:
        return redact_uri(self.text)

    def __repr__(self) -> str:
        return f"Uri({str(self)!r})"
