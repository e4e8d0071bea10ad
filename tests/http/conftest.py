"""Fixtures of the tests over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import velostream
from web_server import Web, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from velostream import Database


@pytest.fixture
def web() -> Iterator[Web]:
    with running() as server:
        yield server


@pytest.fixture
def db(spark: object, tmp_path: Path) -> Iterator[Database]:
    with velostream.connect(tmp_path / "data") as opened:
        yield opened
