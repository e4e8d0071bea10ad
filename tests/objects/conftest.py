"""Fixtures of the tests against a real object store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import velostream
from object_store import S3, Azure, Bucket, Google, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from object_store import ObjectStore
    from velostream import Database


@pytest.fixture(scope="package")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A server that the tests of a process share."""
    with running(tmp_path_factory.mktemp("objects")) as server:
        yield server


@pytest.fixture(scope="package", params=[S3, Google, Azure], ids=lambda kind: kind.scheme)
def any_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ObjectStore]:
    """A server of each kind."""
    with running(tmp_path_factory.mktemp(request.param.scheme), request.param) as server:
        yield server


@pytest.fixture
def bucket(
    object_store: ObjectStore, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Bucket:
    """A bucket of the test's own."""
    return _bucket(object_store, request, monkeypatch)


@pytest.fixture
def any_bucket(
    any_store: ObjectStore, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Bucket:
    """A bucket of the test's own, in a store of each kind."""
    return _bucket(any_store, request, monkeypatch)


def _bucket(server: ObjectStore, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, variable in server.secrets.items():
        monkeypatch.setenv(variable, server.properties[name])
    return Bucket(server, f"t{abs(hash(request.node.nodeid)) % 10**12}")


@pytest.fixture
def db(spark: object, tmp_path: Path) -> Iterator[Database]:
    with velostream.connect(tmp_path / "data") as opened:
        yield opened
