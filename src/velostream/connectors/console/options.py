"""Properties of the console:// sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from velostream.model.options import Options

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class ConsoleOptions(Options):
    """How rows are printed."""

    format: Literal["json", "table"] = Field(
        "json", description="one JSON object per line, or a table per batch"
    )


def parse_console(uri: Uri) -> dict[str, str]:
    """`console://`, also `console://table`."""
    form = uri.rest.strip("/")
    return {**({"format": form} if form else {}), **uri.parameters}
