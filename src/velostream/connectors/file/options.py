"""Properties of file:// sources and sinks."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pydantic import Field

from velostream.connectors.files.options import FilesOptions
from velostream.model.durations import Duration
from velostream.model.options import FILE

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class FileOptions(FilesOptions):
    """Which files, how they are read or written, and how they are watched."""

    path: str | None = Field(
        None, description="file, folder or pattern (*, ?, **, {a,b})", json_schema_extra=FILE
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

    @property
    def debounce(self) -> timedelta:
        """See `FilesOptions`."""
        return self.file_debounce

    @property
    def retry_interval(self) -> timedelta:
        """See `FilesOptions`."""
        return self.file_retry_interval


def parse_file(uri: Uri) -> dict[str, str]:
    """`file:///data/x.csv`, a folder, or a pattern; `file://x.csv` is relative."""
    return {**({"path": uri.rest} if uri.rest else {}), **uri.parameters}
