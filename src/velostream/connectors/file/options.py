"""Properties of file:// sources and sinks."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from velostream.model.durations import Duration
from velostream.model.options import FILE, Options

if TYPE_CHECKING:
    from velostream.model.uri import Uri

FileFormat = Literal["csv", "tsv", "json", "jsonl", "parquet", "avro", "orc"]


class FileOptions(Options):
    """Which files, how they are read or written, and how they are watched."""

    path: str | None = Field(
        None, description="file, folder or pattern (*, ?, **, {a,b})", json_schema_extra=FILE
    )
    format: FileFormat | None = Field(
        None, description="form of the content", json_schema_extra={"default_text": "by name"}
    )
    header: bool = Field(True, description="whether CSV files begin with column names")
    delimiter: str | None = Field(
        None,
        min_length=1,
        max_length=1,
        description="field separator of CSV",
        json_schema_extra={"default_text": "a comma; a tab in .tsv"},
    )
    quote: str = Field(
        '"', min_length=1, max_length=1, description="quote of CSV, doubled inside a quoted field"
    )
    null: str = Field("", description="text that means NULL in CSV, besides an empty field")
    buffer_size: int = Field(
        16 * 1024 * 1024, alias="buffer.size", ge=4096, description="bytes read and kept at a time"
    )
    watch: bool | None = Field(
        None,
        description="keep watching for files that are appended to, added, replaced and edited",
        json_schema_extra={"default_text": "true"},
    )
    file_poll_interval: Duration = Field(
        timedelta(milliseconds=100), alias="file.poll.interval", description="time between looks at the files"
    )
    file_debounce: Duration = Field(
        timedelta(milliseconds=500),
        alias="file.debounce",
        description="how long a file must be quiet before an edit or an unfinished last line is taken",
    )
    file_wait_timeout: Duration = Field(
        timedelta(0),
        alias="file.wait.timeout",
        description="how long creation waits for a missing file or match",
    )
    file_retry_interval: Duration = Field(
        timedelta(seconds=2), alias="file.retry.interval", description="time between attempts while waiting"
    )
    file_create_empty: bool = Field(
        False, alias="file.create.empty", description="create the file, empty, when it is missing"
    )

    @field_validator("format", mode="before")
    @classmethod
    def _folded(cls, value: object) -> object:
        return value.strip().lower() if isinstance(value, str) else value

    @field_validator("delimiter", mode="before")
    @classmethod
    def _named_delimiter(cls, value: object) -> object:
        return "\t" if value in ("\\t", "tab") else value


def parse_file(uri: Uri) -> dict[str, str]:
    """`file:///data/x.csv`, a folder, or a pattern; `file://x.csv` is relative."""
    return {**({"path": uri.rest} if uri.rest else {}), **uri.parameters}
