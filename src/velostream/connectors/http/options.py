"""Properties of http:// and https:// sources and sinks."""

from __future__ import annotations

import ipaddress
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from velostream.connectors.files.options import FilesOptions
from velostream.connectors.http.client.addresses import parts_of
from velostream.model.durations import Duration
from velostream.model.options import ADDRESS, FILE

if TYPE_CHECKING:
    from velostream.model.uri import Uri

EVENTS = "sse"
"""The format of a stream of server-sent events."""
_OF_WEBHOOKS = ("webhook_secret", "webhook_secret_header", "webhook_hmac", "webhook_hmac_header")
_OF_REQUESTS = ("method", "body", "auth", "page_mode", "rate_limit", "incremental_parameter", "watch")


class HttpOptions(FilesOptions):
    """The request, paging and polling, and where the rows are in the answer."""

    url: str | None = Field(None, description="address, with its own parameters", json_schema_extra=ADDRESS)
    connection: str | None = Field(
        None, description="a connection of the configuration, whose properties hold below the statement's"
    )
    format: Literal["json", "jsonl", "csv", "tsv", "parquet", "avro", "orc", "sse"] | None = Field(  # type: ignore[assignment]
        None,
        description="form of the answer; `sse` is a stream of server-sent events",
        json_schema_extra={"default_text": "by the name in the address, else json"},
    )
    changelog: Literal["snapshot", "append"] = Field(
        "snapshot",
        description="`snapshot`: an answer lists all rows, and a row that is no longer listed is retracted; "
        "`append`: every row of a new answer is a new row",
    )
    records: str | None = Field(None, description="path to the rows in the answer, such as data.items")
    method: Literal["GET", "POST", "PUT", "PATCH"] = Field(
        "GET", description="method of the request; a sink uses POST unless this says PUT or PATCH"
    )
    headers: str | None = Field(None, description="headers as a JSON object; best by reference")
    body: str | None = Field(None, description="body of the request")
    auth: str | None = Field(None, description="`bearer TOKEN` or `basic USER:PASSWORD`; best by reference")

    poll_interval: Duration = Field(
        timedelta(minutes=1), alias="poll.interval", description="time between requests"
    )
    rate_limit: float | None = Field(None, alias="rate.limit", gt=0, description="most requests per second")
    connect_timeout: Duration = Field(
        timedelta(seconds=10), alias="connect.timeout", description="time to connect to the server"
    )
    request_timeout: Duration = Field(
        timedelta(minutes=1),
        alias="request.timeout",
        description="time for a whole answer; of a stream of events, the longest silence",
    )
    response_limit: int = Field(
        256 << 20,
        alias="response.limit",
        gt=0,
        description="most bytes of an answer, unpacked; of a delivery 16 MiB, or less",
    )
    redirects: int = Field(5, ge=0, le=20, description="most redirects that a request follows")
    wait_timeout: Duration = Field(
        timedelta(0), alias="wait.timeout", description="how long creation waits for a missing resource"
    )
    retry_after: Duration = Field(
        timedelta(seconds=2), alias="retry.interval", description="time between attempts while waiting"
    )
    ssl_root_cert: str | None = Field(
        None, alias="ssl.root.cert", description="trusted authorities", json_schema_extra=FILE
    )
    ssl_cert: str | None = Field(
        None, alias="ssl.cert", description="our certificate", json_schema_extra=FILE
    )
    ssl_key: str | None = Field(
        None, alias="ssl.key", description="file of our private key", json_schema_extra=FILE
    )

    page_mode: Literal["none", "link", "cursor", "number"] = Field(
        "none", alias="page.mode", description="how further pages are found: link header, cursor or number"
    )
    page_parameter: str | None = Field(
        None,
        alias="page.parameter",
        description="parameter that carries the cursor or page number",
        json_schema_extra={"default_text": "cursor, or page"},
    )
    page_cursor: str | None = Field(
        None,
        alias="page.cursor",
        description="path to the next cursor, or address, in the answer",
    )
    page_size: int | None = Field(None, alias="page.size", gt=0, description="rows asked for per page")
    page_size_parameter: str | None = Field(
        None, alias="page.size.parameter", description="parameter that carries the page size"
    )
    page_start: int = Field(1, alias="page.start", ge=0, description="number of the first page")
    page_limit: int = Field(10_000, alias="page.limit", gt=0, description="most pages of one poll")

    incremental_column: str | None = Field(
        None,
        alias="incremental.column",
        description="path to a value that only grows; rows up to the last one that was seen are passed over",
    )
    incremental_parameter: str | None = Field(
        None,
        alias="incremental.parameter",
        description="parameter that carries the last value seen, so that the server sends only what is new",
    )
    dedupe_id: str | None = Field(
        None,
        alias="dedupe.id",
        description="path to what identifies a row, or header:NAME of a delivery; one that was among the "
        "last 100,000 is passed over",
    )

    webhook: bool = Field(False, description="listen at the address for rows that are posted to us")
    webhook_secret: str | None = Field(
        None, alias="webhook.secret", description="secret that senders know, by reference"
    )
    webhook_secret_header: str = Field(
        "X-Webhook-Secret", alias="webhook.secret.header", description="header that carries the secret itself"
    )
    webhook_hmac: Literal["none", "sha1", "sha256", "sha512"] = Field(
        "none",
        alias="webhook.hmac",
        description="senders sign the body with the secret, by HMAC, and do not send the secret",
    )
    webhook_hmac_header: str = Field(
        "X-Hub-Signature-256",
        alias="webhook.hmac.header",
        description="header that carries the signature, in hexadecimal or base64",
    )

    batch_size: int = Field(
        500, alias="batch.size", gt=0, description="rows that a sink sends in one request"
    )
    deletes: Literal["error", "post"] = Field(
        "error",
        description="`post`: a deleted row is sent with its key and `_deleted`; `error`: it fails the job",
    )

    @property
    def retry_interval(self) -> timedelta:
        """See `FilesOptions`."""
        return self.retry_after

    @property
    def appends(self) -> bool:
        """Whether rows are only added: events, deliveries, and answers that are new rows."""
        return self.webhook or self.format == EVENTS or self.changelog == "append"

    @property
    def listens_locally(self) -> bool:
        """Whether only this machine reaches the address, so that it may be plain and open."""
        host = urlsplit(self.url or "").hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        said = self.model_fields_set
        self._check_address()
        if self.webhook:
            self._refuse(said, _OF_REQUESTS, 'with "webhook" nothing is requested')
            self._check_listening()
        else:
            self._refuse(said, _OF_WEBHOOKS, 'it needs "webhook" = "true"')
        if self.page_mode == "cursor" and self.page_cursor is None:
            raise ValueError('"page.mode" = "cursor" needs "page.cursor": where the answer has the next one')
        if self.page_mode == "none":
            self._refuse(said, ("page_parameter", "page_cursor", "page_size"), 'it needs "page.mode"')
        if self.incremental_parameter is not None and self.incremental_column is None:
            raise ValueError(
                '"incremental.parameter" needs "incremental.column": whose last value it carries'
            )
        if not self.appends:
            self._refuse(
                said,
                ("incremental_column", "dedupe_id"),
                'it is about rows that are added: "changelog" = "append"',
            )
        elif self.format in ("parquet", "avro", "orc", "csv", "tsv"):
            raise ValueError(f'rows that are added are JSON, not "{self.format}"')
        return self

    def _check_address(self) -> None:
        if self.url is None or "${" in self.url:
            return
        try:
            parts = parts_of(self.url)
        except ValueError as exc:
            raise ValueError(f'"{self.url}" is no address: {exc}') from exc
        if parts.username is not None and self.auth is not None:
            raise ValueError('"auth" and the address both say who asks: leave the user out of the address')

    def _check_listening(self) -> None:
        if self.webhook_hmac != "none" and self.webhook_secret is None:
            raise ValueError('"webhook.hmac" needs "webhook.secret": what the body is signed with')
        if not self.url or urlsplit(self.url).port is None:
            raise ValueError('"webhook" needs an address to listen at: http://127.0.0.1:8088/hooks/orders')
        if self.url.startswith("https:") and (self.ssl_cert is None or self.ssl_key is None):
            raise ValueError('listening at https:// needs "ssl.cert" and "ssl.key"')
        if not self.listens_locally and (self.webhook_secret is None or self.url.startswith("http:")):
            raise ValueError(
                "an address that other machines reach needs https:// and a "
                '"webhook.secret"; or listen at 127.0.0.1, behind a proxy'
            )

    def _refuse(self, said: set[str], names: tuple[str, ...], why: str) -> None:
        for name in names:
            if name in said:
                raise ValueError(f'"{type(self).model_fields[name].alias or name}" means nothing here: {why}')


def parse_http(uri: Uri) -> dict[str, str]:
    """The address unchanged: its query parameters belong to the server, not to us."""
    return {"url": uri.text}
