"""Properties of delta:// sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from velostream.connectors.lakes.options import LakeOptions
from velostream.model.options import FILE

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class DeltaOptions(LakeOptions):
    """Where the Delta Lake table is and how it is written."""

    path: str | None = Field(None, description="folder of the table", json_schema_extra=FILE)
    create_table: bool = Field(
        True,
        alias="table.create.if.missing",
        description="create the table that is written to, and add columns that rows get later",
    )


def parse_delta(uri: Uri) -> dict[str, str]:
    """`delta:///path`."""
    return {**({"path": uri.rest} if uri.rest else {}), **uri.parameters}
