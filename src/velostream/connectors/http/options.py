"""Properties of http:// and https:// sources and sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from velostream.model.durations import Duration
from velostream.model.options import ADDRESS, Options

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class HttpOptions(Options):
    """The request, paging and polling, and where the rows are in the response."""

    url: str | None = Field(None, description="address, with its own parameters", json_schema_extra=ADDRESS)
    format: Literal["json", "jsonl", "csv"] | None = Field(
        None, description="form of the body", json_schema_extra={"default_text": "by content type"}
    )
    poll_interval: Duration | None = Field(None, alias="poll.interval", description="time between requests")
    method: Literal["GET", "POST", "PUT", "PATCH"] = Field("GET", description="method of the request")
    headers: str | None = Field(None, description="headers as a JSON object")
    body: str | None = Field(None, description="body of the request")
    auth: str | None = Field(None, description="`bearer TOKEN` or `basic USER:PASSWORD`; best by reference")
    page_mode: Literal["none", "link", "cursor", "number"] = Field(
        "none", alias="page.mode", description="how further pages are found: link header, cursor or number"
    )
    page_parameter: str | None = Field(
        None, alias="page.parameter", description="parameter that carries the cursor or page number"
    )
    page_cursor: str | None = Field(
        None, alias="page.cursor", description="path to the next cursor in the body"
    )
    page_size: int | None = Field(None, alias="page.size", gt=0, description="rows asked for per page")
    page_size_parameter: str | None = Field(
        None, alias="page.size.parameter", description="parameter that carries the page size"
    )
    page_start: int = Field(1, alias="page.start", ge=0, description="number of the first page")
    page_limit: int | None = Field(None, alias="page.limit", gt=0, description="most pages per poll")
    records: str | None = Field(None, description="path to the rows in the body, such as data.items")
    rate_limit: float | None = Field(None, alias="rate.limit", gt=0, description="most requests per second")
    webhook: bool = Field(False, description="wait for POSTs to us instead of asking")


def parse_http(uri: Uri) -> dict[str, str]:
    """The address unchanged: its query parameters belong to the server, not to us."""
    return {"url": uri.text}
