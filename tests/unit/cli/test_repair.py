"""`velo doctor` on a data directory whose catalogue is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.config import load
from velostream.runtime.instance import Instance

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Velo


def test_a_catalogue_that_is_gone_is_told_and_put_back(velo: Velo, data_dir: Path) -> None:
    with Instance(load(None, data_dir=data_dir)) as database:
        database.sql("CREATE TABLE orders (id INT)")
        database.sql("INSERT INTO orders VALUES (1), (2)")
    (data_dir / "catalog.json").unlink()
    ran = velo("sql", "SELECT * FROM orders")
    assert ran.code == 1
    assert "catalog.json is missing" in ran.err
    assert "velo doctor --repair" in ran.err
    found = velo("doctor")
    assert found.code == 1
    assert "catalog.json is missing" in found.out
    repaired = velo("doctor", "--repair")
    assert "was written again; it holds 1 statement" in repaired.err
    assert "1 statement, as written" in repaired.out
    assert velo("sql", "SELECT COUNT(*) AS n FROM orders", "--format", "csv").out.split() == ["n", "2"]
    assert "nothing to repair" in velo("doctor", "--repair").err
