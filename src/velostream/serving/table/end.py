"""Why an open table became unusable: closed, dropped, replaced or renamed."""

from __future__ import annotations

from enum import Enum


class End(Enum):
    """Why a table cannot be used any more."""

    CLOSED = "is closed"
    DROPPED = "was dropped"
    REPLACED = "was replaced"
    RENAMED = "was renamed"

    def told(self, name: str) -> tuple[str, str | None]:
        """Message and hint of the error that further use raises."""
        hints = {
            End.CLOSED: "open its database again, and ask that for the table",
            End.RENAMED: "ask the database for it by its new name",
            End.REPLACED: f'ask the database for the new one: db.table("{name}")',
        }
        return f'table "{name}" {self.value}', hints.get(self)
