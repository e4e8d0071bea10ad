"""Properties of sql:// sources: any database with a registered driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field, model_validator

from velostream.connectors.databases.options import OF_LOGS, DatabaseOptions
from velostream.errors import VelostreamError

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class SqlOptions(DatabaseOptions):
    """The properties of all databases; `driver` and `connection` select the database."""

    of_others: ClassVar[tuple[str, ...]] = (
        *OF_LOGS,
        # One connection reads, and nothing is written.
        *("pool_size", "connection_pool_size", "pool_max_idle", "pool_validation_query"),
        *("parallel_readers", "prefetch_count", "create_table"),
    )
    of_connections: ClassVar[tuple[str, ...]] = (
        *("host", "port", "database", "username", "password", "connect_timeout", "socket_timeout"),
        *("ssl_mode", "ssl_root_cert", "ssl_cert", "ssl_key", "query_timeout", "transaction_isolation"),
    )
    """What a driver may or may not make something of."""

    key: str | None = Field(None, description="columns that identify a row, separated by commas")

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that the statement says identify a row."""
        return tuple(name.strip() for name in (self.key or "").split(",") if name.strip())

    @model_validator(mode="after")
    def _known_to_its_driver(self) -> Self:
        from velostream.connectors.any_sql.drivers.registry import driver_named

        try:
            takes = driver_named(self.driver).takes
        except VelostreamError:
            return self  # told where it is opened
        fields = type(self).model_fields
        for name in sorted(self.model_fields_set & set(self.of_connections) - takes):
            known = ", ".join(
                f'"{fields[each].alias or each}"' for each in self.of_connections if each in takes
            )
            raise ValueError(
                f'driver "{self.driver}" makes nothing of "{fields[name].alias or name}", only of {known}'
            )
        return self

    @model_validator(mode="after")
    def _no_changes(self) -> Self:
        if self.cdc:
            raise ValueError(
                'sql:// polls: "cdc" cannot be used; use "poll.interval", or postgres://, mysql://'
            )
        return self


def parse_sql(uri: Uri) -> dict[str, str]:
    """`sql://driver:connection?query="…"`; the text after the driver is interpreted by the driver.

    `jdbc:…` is the driver `jdbc`.
    """
    if uri.scheme == "jdbc":
        return {"driver": "jdbc", "connection": uri.rest, **uri.parameters}
    driver, colon, connection = uri.rest.partition(":")
    found = {"driver": driver, "connection": connection} if colon else {"driver": driver} if driver else {}
    return {**found, **uri.parameters}
