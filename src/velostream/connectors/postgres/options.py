"""Properties of postgres:// sources and sinks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import model_validator

from velostream.connectors.addresses import parse_address
from velostream.connectors.databases.options import DatabaseOptions

if TYPE_CHECKING:
    from velostream.model.uri import Uri

_START = re.compile(r"latest|earliest|[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")


class PostgresOptions(DatabaseOptions):
    """The properties of all databases."""

    of_others: ClassVar[tuple[str, ...]] = ("binlog_file", "binlog_position")

    @model_validator(mode="after")
    def _known_start(self) -> Self:
        if self.start is not None and not _START.fullmatch(self.start):
            raise ValueError(
                f'"cdc.start" = "{self.start}" is neither latest, earliest nor an LSN such as 0/16B3748'
            )
        if self.start not in (None, "latest") and self.slot_name is None:
            raise ValueError(
                f'"cdc.start" = "{self.start}" needs the "slot.name" of a replication slot that has kept the '
                "changes since then; a slot that is made now has none"
            )
        return self

    @property
    def where_it_is(self) -> str | None:
        """The database; a connection that the configuration does not have is one of the configured host."""
        return self.database or self.connection


def parse_postgres(uri: Uri) -> dict[str, str]:
    """`postgresql://host:port/db?table=t`, or `postgres://a/b`: the connection `a` and its table `b`.

    The short form is recognised by its scheme, the missing `table=` and `query=`, and a plain name as `a`.
    """
    netloc, _, path = uri.rest.partition("/")
    named = uri.scheme == "postgres" and not uri.parameters.keys() & {"table", "query"}
    if named and path and "@" not in netloc and ":" not in netloc:
        return {"connection": netloc, "table": path.rstrip("/"), **uri.parameters}
    return parse_address(uri)
