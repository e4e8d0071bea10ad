"""Addresses inside URIs: `user:password@host:port/name`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from velostream.model.uri import Uri


def parse_address(uri: Uri, name: str = "database") -> dict[str, str]:
    """Host, port, credentials and the first path part of a URI as properties, then its parameters."""
    found: dict[str, str] = {}
    # A password may have any character, also those that end other parts.
    user, at, place = uri.rest.rpartition("@")
    address, _, path = place.partition("/")
    if at:
        username, colon, password = user.partition(":")
        found["username"] = username
        if colon:
            found["password"] = password
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        found["port"] = port
    else:
        host = address
    if host:
        found["host"] = host.strip("[]")
    if path:
        found[name] = path.rstrip("/")
    return {**found, **uri.parameters}
