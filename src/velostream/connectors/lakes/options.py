"""Properties that tables of lakes share."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from velostream.model.options import Options


class LakeOptions(Options):
    """How a table of a lake is written."""

    mode: Literal["append", "upsert"] | None = Field(
        None,
        description="append rows, or replace and delete them by key",
        json_schema_extra={"default_text": "upsert with a key, else append"},
    )
    partition_by: str | None = Field(
        None,
        alias="partition.by",
        description="columns by which the table that is created is partitioned, separated by commas",
    )
    create_table: bool = Field(
        False,
        alias="table.create.if.missing",
        description="create the table that is written to, and add columns that rows get later",
    )
