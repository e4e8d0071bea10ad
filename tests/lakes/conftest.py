"""Fixtures of the tests of tables of lakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lakehouses import DeltaFolder, IcebergFolder, IcebergRest, Lakehouse

import velostream
from iceberg_server import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from iceberg_server import IcebergServer
    from velostream import Database


@pytest.fixture(scope="package")
def iceberg_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergServer]:
    """A catalogue that the tests of a process share."""
    with running(tmp_path_factory.mktemp("warehouse").as_uri()) as server:
        yield server


@pytest.fixture
def delta(tmp_path: Path) -> Iterator[DeltaFolder]:
    found = DeltaFolder(tmp_path)
    yield found
    found.close()


@pytest.fixture
def iceberg(tmp_path: Path) -> Iterator[IcebergFolder]:
    found = IcebergFolder(tmp_path)
    yield found
    found.close()


@pytest.fixture
def rest(
    tmp_path: Path, iceberg_server: IcebergServer, request: pytest.FixtureRequest
) -> Iterator[IcebergRest]:
    """Tables of the test's own on the server."""
    found = IcebergRest(tmp_path, iceberg_server, f"t{abs(hash(request.node.nodeid)) % 10**12}_")
    yield found
    found.close()


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest) -> Lakehouse:
    """Each kind of tables, in folders of this machine."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Lakehouse)
    return found


@pytest.fixture(params=["delta", "iceberg", "rest"])
def any_lake(request: pytest.FixtureRequest) -> Lakehouse:
    """Each kind of tables, and a catalogue that is a server."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Lakehouse)
    return found


@pytest.fixture
def db(spark: object, tmp_path: Path) -> Iterator[Database]:
    with velostream.connect(tmp_path / "data") as opened:
        yield opened
