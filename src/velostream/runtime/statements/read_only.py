"""Statements that only ask: those that a database opened for reading runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.errors import TableError
from velostream.model.statements import Describe, Explain, SelectStatement, Show, ShowCreate

if TYPE_CHECKING:
    from velostream.model.statements import Statement

ASKING = (SelectStatement, Show, ShowCreate, Describe, Explain)


def refuse_change(statement: Statement) -> None:
    """Raise TableError unless the statement only asks."""
    if not isinstance(statement, ASKING):
        raise TableError(
            "the database was opened read-only",
            hint="connect without read_only=True to change something",
            location=statement.location,
        )
