"""Properties of postgres:// sources and sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.addresses import parse_address
from velostream.connectors.databases import DatabaseOptions

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class PostgresOptions(DatabaseOptions):
    """The properties of all databases."""


def parse_postgres(uri: Uri) -> dict[str, str]:
    """`postgresql://host:port/db?table=t`, or `postgres://a/b`: the connection `a` and its table `b`.

    The short form is recognised by its scheme, the missing `table=` and `query=`, and a plain name as `a`.
    """
    netloc, _, path = uri.rest.partition("/")
    named = uri.scheme == "postgres" and not uri.parameters.keys() & {"table", "query"}
    if named and path and "@" not in netloc and ":" not in netloc:
        return {"connection": netloc, "table": path.rstrip("/"), **uri.parameters}
    return parse_address(uri)
