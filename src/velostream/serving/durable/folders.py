"""The folders of tables: one for each edition of a name."""

from __future__ import annotations

from urllib.parse import quote, unquote

ASIDE = "."
"""Prefix of folders being created or removed; no table folder has it."""
_EDITION = "@"
"""Separates the table's name, in which it is escaped, from the edition."""


def folder_name(name: str, edition: int = 0) -> str:
    """The folder of an edition of a table."""
    folder = quote(name, safe="")
    if folder.startswith(ASIDE):
        folder = "%2E" + folder[1:]
    return f"{folder}{_EDITION}{edition}" if edition else folder


def name_and_edition(folder: str) -> tuple[str, int]:
    """The arguments of `folder_name`."""
    name, _, edition = folder.partition(_EDITION)
    return unquote(name), int(edition or 0)
