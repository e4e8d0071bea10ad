"""Properties of delta:// sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from velostream.model.options import FILE, Options

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class DeltaOptions(Options):
    """Where the Delta Lake table is and how it is written."""

    path: str | None = Field(None, description="folder of the table", json_schema_extra=FILE)
    mode: Literal["append", "upsert"] | None = Field(
        None,
        description="append rows, or merge them by key",
        json_schema_extra={"default_text": "upsert with a key, else append"},
    )


def parse_delta(uri: Uri) -> dict[str, str]:
    """`delta:///path`."""
    return {**({"path": uri.rest} if uri.rest else {}), **uri.parameters}
