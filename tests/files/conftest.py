"""Databases over watched files, all in the one JVM of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import velostream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from velostream.runtime.database import Database

    Open = Callable[[Path], Database]


@pytest.fixture(scope="module")
def opened(spark) -> Iterator[Open]:
    """Open data directories; whatever is still open when the module ends is closed."""
    databases: list[Database] = []

    def connect(folder: Path) -> Database:
        databases.append(velostream.connect(folder))
        return databases[-1]

    yield connect
    for database in databases:
        database.close()
