from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from trade_rows import TRADES

from velostream.model.tables import TableSpec
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TableStore]:
    with TableStore(tmp_path / "tables") as made:
        yield made


@pytest.fixture
def keyed_spec() -> TableSpec:
    return TableSpec("trades", TRADES, ("symbol",))


@pytest.fixture
def rows_spec() -> TableSpec:
    return TableSpec("log", TRADES)
