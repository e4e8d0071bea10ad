"""Properties of sql:// sources: any database with a registered driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.databases import DatabaseOptions

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class SqlOptions(DatabaseOptions):
    """The properties of all databases; `driver` and `connection` select the database."""


def parse_sql(uri: Uri) -> dict[str, str]:
    """`sql://driver:connection?query="…"`; the text after the driver is interpreted by the driver."""
    driver, colon, connection = uri.rest.partition(":")
    found = {"driver": driver, "connection": connection} if colon else {"driver": driver} if driver else {}
    return {**found, **uri.parameters}
