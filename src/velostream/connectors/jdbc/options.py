"""Properties of sql:// sources: any database with a registered driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.databases import DatabaseOptions

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class SqlOptions(DatabaseOptions):
    """Those of all databases; `driver` and `connection` say which."""


def parse_sql(uri: Uri) -> dict[str, str]:
    """`sql://driver:connection?query="…"`; what follows the driver is its own business."""
    driver, colon, connection = uri.rest.partition(":")
    found = {"driver": driver, "connection": connection} if colon else {"driver": driver} if driver else {}
    return {**found, **uri.parameters}
