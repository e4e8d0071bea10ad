"""Databases, and a file of trades."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from trading import TRADES

from spark_databases import clock, clocked, database, follow_keys, name, opened

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["clock", "clocked", "database", "follow_keys", "name", "opened"]


@pytest.fixture
def trades(tmp_path: Path) -> Path:
    path = tmp_path / "trades.csv"
    path.write_text(TRADES)
    return path
