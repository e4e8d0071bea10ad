"""The folders of tables: one for each edition of a name."""

from __future__ import annotations

from urllib.parse import quote, unquote

ASIDE = "."
"""Folders being made or removed start with it; table folders never do."""
_EDITION = "@"
"""Stands in a folder's name between the table's name, where it would be escaped, and the edition."""


def folder_name(name: str, edition: int = 0) -> str:
    """The folder of an edition of a table."""
    folder = quote(name, safe="")
    if folder.startswith(ASIDE):
        folder = "%2E" + folder[1:]
    return f"{folder}{_EDITION}{edition}" if edition else folder


def name_and_edition(folder: str) -> tuple[str, int]:
    """What `folder_name` was given."""
    name, _, edition = folder.partition(_EDITION)
    return unquote(name), int(edition or 0)
