"""Properties of mysql:// sources and sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import model_validator

from velostream.connectors.addresses import parse_address
from velostream.connectors.databases.options import DatabaseOptions

if TYPE_CHECKING:
    from velostream.model.uri import Uri


class MySqlOptions(DatabaseOptions):
    """The properties of all databases."""

    of_others: ClassVar[tuple[str, ...]] = ("slot_name", "publication_name")

    @property
    def start(self) -> str:
        """Where changes begin: `latest`, `earliest`, or `file:position`."""
        if self.binlog_file is not None:
            return f"{self.binlog_file}:{4 if self.binlog_position == 'auto' else self.binlog_position}"
        return self.cdc_start or self.cdc_start_position or "latest"

    @model_validator(mode="after")
    def _begins_somewhere(self) -> Self:
        if self.binlog_file is None and self.binlog_position != "auto":
            raise ValueError('"binlog.position" is a place in "binlog.file", which is missing')
        if self.binlog_file is not None and (self.cdc_start or self.cdc_start_position):
            raise ValueError('"binlog.file" and "cdc.start" both say where to begin; give one of them')
        if self.start not in ("latest", "earliest") and not self.start.rpartition(":")[2].isdigit():
            raise ValueError(
                f'"cdc.start" is "latest", "earliest" or "file:position", and not "{self.start}"'
            )
        return self


def parse_mysql(uri: Uri) -> dict[str, str]:
    """`mysql://host:port/database?table=name`."""
    return parse_address(uri)
