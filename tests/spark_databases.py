"""Databases for tests that run statements on a real Spark, all in the one JVM of the process.

The conftest.py of an area imports the fixtures.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from velostream.config import load
from velostream.engine.inputs import feed
from velostream.runtime.instance import Instance, open_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Open = Callable[[Path], Instance]


@pytest.fixture(autouse=True)
def follow_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of tests are so small that nothing would be followed by key."""
    monkeypatch.setattr(feed, "FEW_ROWS", 0)


@pytest.fixture
def opened(spark) -> Iterator[Open]:
    """Open data directories; whatever is still open when the test ends is closed."""
    databases: list[Instance] = []

    def connect(folder: Path) -> Instance:
        databases.append(open_instance(folder))
        return databases[-1]

    yield connect
    for database in databases:
        database.close()


@pytest.fixture(scope="module")
def database(spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """One database for a whole module: its tests use names of their own."""
    with open_instance(tmp_path_factory.mktemp("data") / "velostream") as shared:
        yield shared


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test of the shared database uses."""
    return request.node.name.removeprefix("test_").split("[")[0]


class Clock:
    """A clock that a test moves; it begins at noon."""

    def __init__(self) -> None:
        self.now = datetime(2026, 5, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **by: float) -> None:
        self.now += timedelta(**by)


@pytest.fixture
def clock() -> Clock:
    """What time it is for databases of `clocked`."""
    return Clock()


@pytest.fixture
def clocked(spark, clock: Clock) -> Iterator[Open]:
    """Open data directories whose clock is the test's."""
    databases: list[Instance] = []

    def connect(folder: Path) -> Instance:
        databases.append(Instance(load(None, data_dir=folder), clock=clock))
        return databases[-1]

    yield connect
    for database in databases:
        database.close()
