"""Properties of s3://, gs:// and az:// sources and sinks."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator

from velostream.connectors.files.options import FilesOptions
from velostream.model.durations import Duration
from velostream.model.options import ADDRESS

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class ObjectOptions(FilesOptions):
    """Which objects, how they are read or written, and how new ones are noticed."""

    bucket: str | None = Field(None, description="bucket, or container")
    path: str | None = Field(
        None, description="key, prefix that ends in /, or pattern (*, ?, **, {a,b}) inside the bucket"
    )
    connection: str | None = Field(
        None, description="a connection of the configuration, whose properties hold below the statement's"
    )
    endpoint: str | None = Field(
        None,
        description="address of the service, as http(s)://host:port, where it is not the usual one",
        json_schema_extra=ADDRESS,
    )
    anonymous: bool = Field(False, description="read a public bucket without credentials")
    poll_interval: Duration = Field(
        timedelta(seconds=30), alias="poll.interval", description="time between listings"
    )
    wait_timeout: Duration = Field(
        timedelta(0),
        alias="wait.timeout",
        description="how long creation waits for a missing bucket, object or match",
    )
    retry_after: Duration = Field(
        timedelta(seconds=2), alias="retry.interval", description="time between attempts while waiting"
    )
    parallel_readers: int = Field(
        16, alias="parallel.readers", gt=0, le=256, description="objects that are fetched at a time"
    )
    connect_timeout: Duration = Field(
        timedelta(seconds=10), alias="connect.timeout", description="time to connect to the service"
    )

    @property
    def usual_host(self) -> str:
        """The host that has the bucket where no endpoint is given."""
        return ""

    @property
    def retry_interval(self) -> timedelta:
        """See `FilesOptions`."""
        return self.retry_after

    @model_validator(mode="after")
    def _in_a_bucket(self) -> Self:
        if self.bucket is not None and not self.bucket.strip("."):
            raise ValueError(f'"{self.bucket}" is no bucket')
        return self


class S3Options(ObjectOptions):
    """Amazon S3, and everything that speaks its protocol."""

    region: str | None = Field(
        None, description="region of the bucket", json_schema_extra={"default_text": "asked of the bucket"}
    )
    access_key_id: str | None = Field(None, alias="access.key.id", description="access key, by reference")
    secret_access_key: str | None = Field(
        None, alias="secret.access.key", description="secret key, by reference"
    )
    session_token: str | None = Field(None, alias="session.token", description="session token, by reference")
    role: str | None = Field(None, description="ARN of a role to assume")
    events: str | None = Field(
        None,
        description="URL of the queue (SQS) that receives the bucket's event notifications: new objects are "
        "then read at once, and listings only make sure",
        json_schema_extra=ADDRESS,
    )

    @property
    def usual_host(self) -> str:
        """See `ObjectOptions`."""
        return f"{self.bucket}.s3.amazonaws.com"

    @model_validator(mode="after")
    def _keys_belong_together(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError('"access.key.id" and "secret.access.key" belong together')
        if self.anonymous and self.access_key_id is not None:
            raise ValueError('"anonymous" has no access key')
        return self


class GoogleOptions(ObjectOptions):
    """Google Cloud Storage; credentials are those of the environment (application default credentials)."""

    @property
    def usual_host(self) -> str:
        """See `ObjectOptions`."""
        return "storage.googleapis.com"


class AzureOptions(ObjectOptions):
    """Azure Blob Storage."""

    account: str | None = Field(None, description="name of the storage account")
    account_key: str | None = Field(None, alias="account.key", description="key of the account, by reference")
    sas_token: str | None = Field(None, alias="sas.token", description="shared access token, by reference")

    @property
    def usual_host(self) -> str:
        """See `ObjectOptions`."""
        return f"{self.account}.blob.core.windows.net"


def parse_bucket(uri: Uri) -> dict[str, str]:
    """`s3://bucket/prefix/*.parquet`."""
    bucket, _, path = uri.rest.partition("/")
    return {**({"bucket": bucket} if bucket else {}), **({"path": path} if path else {}), **uri.parameters}
