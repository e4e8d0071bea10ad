"""What tells a server which answer we have, so that it need not send it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from velostream.connectors.http.client.answers import Answer


def validators_of(answer: Answer) -> dict[str, str]:
    """The headers of the next request; none where the server tells nothing of the kind."""
    found = {
        "If-None-Match": answer.headers.get("ETag"),
        "If-Modified-Since": answer.headers.get("Last-Modified"),
    }
    return {name: value for name, value in found.items() if value}
