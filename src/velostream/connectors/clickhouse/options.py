"""Properties of clickhouse:// sources and sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field, model_validator

from velostream.connectors.addresses import parse_address
from velostream.connectors.databases.options import OF_LOGS, DatabaseOptions

if TYPE_CHECKING:
    from velostream.model.uri import Uri

_PORT, _TLS_PORT = 8123, 8443
_TLS_PORTS = (_TLS_PORT, 443)


class ClickHouseOptions(DatabaseOptions):
    """The properties of all databases."""

    of_others: ClassVar[tuple[str, ...]] = (
        *OF_LOGS,
        # Requests stand alone: there is no pool of sessions, and there are no transactions.
        *("pool_size", "connection_pool_size", "pool_max_idle", "pool_validation_query"),
        "transaction_isolation",
    )

    key: str | None = Field(
        None, description="columns that identify a row, separated by commas; ClickHouse itself knows none"
    )
    final: bool | None = Field(
        None,
        description="read rows as they are after all merges (FINAL)",
        json_schema_extra={"default_text": "true for engines that merge rows"},
    )

    @property
    def where_it_is(self) -> str | None:
        """The database; a connection that the configuration does not have is one of the configured host."""
        return self.database or self.connection

    @property
    def encrypted(self) -> bool:
        """Whether TLS is used. HTTP cannot negotiate it: where it is only preferred, the port decides."""
        if self.ssl_mode == "prefer":
            return self.port in _TLS_PORTS
        return self.ssl_mode in ("require", "verify-ca", "verify-full")

    @property
    def http_port(self) -> int:
        """The port of the HTTP interface."""
        return self.port or (_TLS_PORT if self.encrypted else _PORT)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that the statement says identify a row."""
        return tuple(name.strip() for name in (self.key or "").split(",") if name.strip())

    @model_validator(mode="after")
    def _no_changes(self) -> Self:
        if self.cdc:
            raise ValueError(
                'ClickHouse has no log of changes to follow: "cdc" cannot be used; use "poll.interval"'
            )
        return self


def parse_clickhouse(uri: Uri) -> dict[str, str]:
    """`clickhouse://host:port/database?table=name`, or `clickhouse://a/b`: the connection `a`, its table `b`.

    The short form is recognised by the missing `table=` and `query=`, and a plain name as `a`.
    """
    netloc, _, path = uri.rest.partition("/")
    if not uri.parameters.keys() & {"table", "query"} and path and "@" not in netloc and ":" not in netloc:
        return {"connection": netloc, "table": path.rstrip("/"), **uri.parameters}
    return parse_address(uri)
