"""Fixtures of the tests against a real object store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import velostream
from object_store import KEY, SECRET, Bucket, running

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


@pytest.fixture
def bucket(
    object_store: ObjectStore, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Bucket:
    """A bucket of the test's own."""
    monkeypatch.setenv("STORE_KEY", KEY)
    monkeypatch.setenv("STORE_SECRET", SECRET)
    return Bucket(object_store, f"t{abs(hash(request.node.nodeid)) % 10**12}")


@pytest.fixture
def db(spark: object, tmp_path: Path) -> Iterator[Database]:
    with velostream.connect(tmp_path / "data") as opened:
        yield opened
