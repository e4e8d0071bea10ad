"""Properties of iceberg:// sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator

from velostream.connectors.lakes.options import LakeOptions
from velostream.model.options import ADDRESS, FILE

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class IcebergOptions(LakeOptions):
    """The catalogue, the table in it, and how it is written."""

    connection: str | None = Field(
        None, description="a connection of the configuration, whose properties hold below the statement's"
    )
    table: str | None = Field(None, description="namespace and name of the table, as namespace.table")
    path: str | None = Field(
        None,
        description="folder of a warehouse on this machine; its catalogue is the file catalog.db in it",
        json_schema_extra=FILE,
    )
    catalog_name: str = Field(
        "default", alias="catalog.name", description="name of the catalogue inside catalog.db"
    )
    uri: str | None = Field(
        None, description="address of a REST catalogue, as http(s)://host:port", json_schema_extra=ADDRESS
    )
    warehouse: str | None = Field(None, description="the warehouse that a REST catalogue is asked for")
    token: str | None = Field(None, description="token for the REST catalogue, by reference")
    credential: str | None = Field(
        None, description="client id and secret for the REST catalogue, as id:secret, by reference"
    )
    oauth_address: str | None = Field(
        None,
        alias="oauth2.server.uri",
        description="where the credential is exchanged for a token, where it is not the catalogue",
        json_schema_extra=ADDRESS,
    )
    scope: str | None = Field(None, description="what the token is for")
    endpoint: str | None = Field(
        None,
        description="address of the object store (S3), where the catalogue does not tell it",
        json_schema_extra=ADDRESS,
    )
    region: str | None = Field(None, description="region of the object store")
    access_key_id: str | None = Field(
        None, alias="access.key.id", description="access key of the object store, by reference"
    )
    secret_access_key: str | None = Field(
        None, alias="secret.access.key", description="secret key of the object store, by reference"
    )
    session_token: str | None = Field(
        None, alias="session.token", description="session token of the object store, by reference"
    )

    @model_validator(mode="after")
    def _one_catalogue(self) -> Self:
        if self.path is not None and self.uri is not None:
            raise ValueError('"path" and "uri" are two catalogues; give one of them')
        return self


def parse_iceberg(uri: Uri) -> dict[str, str]:
    """`iceberg:///warehouse/namespace.table`, or `iceberg://connection/namespace.table`."""
    place, slash, table = uri.rest.rpartition("/")
    found = {"table": table} if table else {}
    if slash:
        found["connection" if place and not place.startswith(("/", ".", "~")) else "path"] = place or "/"
    return {**found, **uri.parameters}
