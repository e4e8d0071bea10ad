"""Properties of memory:// sources and sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from velostream.model.options import Options

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class MemoryOptions(Options):
    """Which table."""

    table: str | None = Field(None, description="a table of this data directory")


def parse_memory(uri: Uri) -> dict[str, str]:
    """`memory://table`."""
    name = uri.rest.strip("/")
    return {**({"table": name} if name else {}), **uri.parameters}
