"""Properties that files have wherever they are."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import Field, field_validator

from velostream.model.options import Options

FileFormat = Literal["csv", "tsv", "json", "jsonl", "parquet", "avro", "orc"]


class FilesOptions(Options):
    """Which files, and how they are read or written."""

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

    @property
    def debounce(self) -> timedelta:
        """How long a file must be quiet before an edit or an unfinished last line is taken."""
        return timedelta(0)

    @property
    def retry_interval(self) -> timedelta:
        """The time between attempts while a file is waited for."""
        return timedelta(seconds=2)

    @field_validator("format", mode="before")
    @classmethod
    def _folded(cls, value: object) -> object:
        return value.strip().lower() if isinstance(value, str) else value

    @field_validator("delimiter", mode="before")
    @classmethod
    def _named_delimiter(cls, value: object) -> object:
        return "\t" if value in ("\\t", "tab") else value
