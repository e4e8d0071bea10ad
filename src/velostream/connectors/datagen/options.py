"""Properties of datagen:// sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from velostream.model.options import Options

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class DatagenOptions(Options):
    """Which rows, how many, how fast."""

    generator: str | None = Field(
        None,
        description="trades, orders, users or clicks; any other name needs declared columns",
        json_schema_extra={"default_text": "trades"},
    )
    rows_per_second: float = Field(10.0, gt=0, description="rate of new rows")
    rows: int | None = Field(None, ge=0, description="end after this many rows; without it there is no end")
    seed: int = Field(0, description="another seed gives other values")


def parse_datagen(uri: Uri) -> dict[str, str]:
    """`datagen://trades?rows_per_second=100`."""
    name = uri.rest.strip("/")
    return {**({"generator": name} if name else {}), **uri.parameters}
