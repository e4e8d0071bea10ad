"""Addresses, as users and servers write them."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, quote, urljoin, urlsplit

_PORTS = {"http": 80, "https": 443}
_UNFIT = re.compile(r"[^\x21-\x7e]+")


def parts_of(url: str) -> SplitResult:
    """The parts of an address; raises ValueError, with the reason, where it is none that can be asked."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("it has no host" if parts.scheme in _PORTS else "it is neither http:// nor https://")
    if parts.port == 0:
        raise ValueError("no server has port 0")
    return parts


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of an address that was checked: two of one server have the same."""
    parts = parts_of(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme]


def leads_to(url: str, target: str) -> str:
    """The address that `target`, from a header of an answer or from its content, means at `url`.

    Raises ValueError where it means none. One of another scheme is left to the caller.
    """
    found = urljoin(url, target)
    if urlsplit(found).scheme in _PORTS:
        parts_of(found)
    return found


def header_text(text: str) -> str:
    """What a header says: its bytes are taken for Latin-1 on arrival, and addresses in it are UTF-8."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text


def requested(parts: SplitResult) -> str:
    """Path and parameters as a request has them: what ASCII does not have, and spaces, as `%` and digits."""
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _UNFIT.sub(lambda found: quote(found[0], safe=""), path)
