"""Properties of clickhouse:// sources and sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.addresses import parse_address
from velostream.connectors.databases import DatabaseOptions

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class ClickHouseOptions(DatabaseOptions):
    """The properties of all databases."""


def parse_clickhouse(uri: Uri) -> dict[str, str]:
    """`clickhouse://host:port/database?table=name`."""
    return parse_address(uri)
