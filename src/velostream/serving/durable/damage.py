"""Damaged files of tables: the error that names them, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.disk.framing import FrameFile
from velostream.errors import CorruptDataError

if TYPE_CHECKING:
    from pathlib import Path

REMEDY = "restore the table's folder from a copy, or drop the table and create it again"
"""What to do about a table that cannot be read."""
_HINT = f"velo tables --verify shows what is left; {REMEDY}"


def corrupt(message: str, detail: str | None = None) -> CorruptDataError:
    """The CorruptDataError for a file, with what to do about it."""
    return CorruptDataError(message, detail=detail, hint=_HINT)


def table_frames(path: Path, size: int | None = None) -> FrameFile:
    """The frames of a file of a table."""
    return FrameFile(path, size, hint=_HINT)
