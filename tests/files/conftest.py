"""Databases over watched files, all in the one JVM of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from velostream.runtime.instance import open_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from velostream.runtime.instance import Instance

    Open = Callable[[Path], Instance]


@pytest.fixture(scope="module")
def opened(spark) -> Iterator[Open]:
    """Open data directories; whatever is still open when the module ends is closed."""
    databases: list[Instance] = []

    def connect(folder: Path) -> Instance:
        databases.append(open_instance(folder))
        return databases[-1]

    yield connect
    for database in databases:
        database.close()
