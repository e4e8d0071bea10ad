"""A database, and stations whose records a test adds to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import stations
from pyspark import cloudpickle

import velostream
from velostream.connectors.registry import default_registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from velostream import Database

# The processes of Spark's tasks do not see the folder of the tests; a package that is installed they do.
cloudpickle.register_pickle_by_value(stations)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """stations:// is a connector, and nothing was asked of it."""
    velostream.register(stations.StationsConnector)
    stations.SEEN.clear()
    yield
    default_registry().forget("stations")


@pytest.fixture
def db(spark: object, tmp_path: Path) -> Iterator[Database]:
    """A database of the test's own; `velostream.connect` with its folder opens it again."""
    with velostream.connect(tmp_path / "data") as database:
        yield database


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where stations send their records."""
    path = tmp_path / "stations"
    path.mkdir()
    return path
