"""Whether a server is there, without asking it for anything."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from velostream.connectors.http.client.connections import connect
from velostream.connectors.http.client.failures import unreachable
from velostream.model.reach import Reach

if TYPE_CHECKING:
    from velostream.connectors.http.options import HttpOptions


def reached(options: HttpOptions) -> None:
    """Connect and disconnect; raises a SourceError where that is not possible."""
    parts = urlsplit(options.url or "")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    connection = connect(parts.scheme, parts.hostname or "", port, options, Reach())
    try:
        connection.connect()
    except OSError as exc:
        raise unreachable(options.url or "", exc) from exc
    finally:
        connection.close()
