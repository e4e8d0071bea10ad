"""Properties of s3:// sources and sinks."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pydantic import Field

from velostream.model.durations import Duration
from velostream.model.options import ADDRESS, Options

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class S3Options(Options):
    """Which objects to read, how to reach the store, and how to notice new objects."""

    bucket: str | None = Field(None, description="bucket")
    path: str | None = Field(None, description="key, prefix or pattern inside the bucket")
    region: str | None = Field(None, description="region of the bucket")
    endpoint: str | None = Field(
        None, description="address of an S3-compatible service", json_schema_extra=ADDRESS
    )
    access_key_id: str | None = Field(None, alias="access.key.id", description="access key, by reference")
    secret_access_key: str | None = Field(
        None, alias="secret.access.key", description="secret key, by reference"
    )
    session_token: str | None = Field(None, alias="session.token", description="session token, by reference")
    format: str | None = Field(
        None, description="form of the objects", json_schema_extra={"default_text": "by name"}
    )
    header: bool = Field(True, description="whether CSV objects begin with column names")
    delimiter: str | None = Field(None, min_length=1, max_length=1, description="field separator of CSV")
    quote: str = Field('"', max_length=1, description="quote of CSV")
    null: str = Field("", description="text that means NULL in CSV, besides an empty field")
    poll_interval: Duration = Field(
        timedelta(seconds=30), alias="poll.interval", description="time between listings"
    )
    events: str | None = Field(None, description="queue of the bucket's event notifications")


def parse_s3(uri: Uri) -> dict[str, str]:
    """`s3://bucket/prefix/*.parquet`."""
    bucket, _, path = uri.rest.partition("/")
    return {**({"bucket": bucket} if bucket else {}), **({"path": path} if path else {}), **uri.parameters}
