"""Properties of sql:// sources: any database with a registered driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field, model_validator

from velostream.connectors.databases.options import OF_LOGS, DatabaseOptions

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class SqlOptions(DatabaseOptions):
    """The properties of all databases; `driver` and `connection` select the database."""

    of_others: ClassVar[tuple[str, ...]] = OF_LOGS

    key: str | None = Field(None, description="columns that identify a row, separated by commas")

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that the statement says identify a row."""
        return tuple(name.strip() for name in (self.key or "").split(",") if name.strip())

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
