"""Whether a server is there, without asking it for anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.http.client.addresses import origin
from velostream.connectors.http.client.connections import connect
from velostream.connectors.http.client.failures import unreachable

if TYPE_CHECKING:
    from velostream.connectors.http.options import HttpOptions
    from velostream.model.reach import Reach


def reached(options: HttpOptions, reach: Reach) -> None:
    """Connect and disconnect; raises a SourceError where that is not possible."""
    connection = connect(*origin(options.url or ""), options, reach)
    try:
        connection.connect()
    except OSError as exc:
        raise unreachable(options.url or "", exc) from exc
    finally:
        connection.close()
