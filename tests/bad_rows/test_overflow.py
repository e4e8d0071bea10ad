"""A sum that outgrows its type takes its group out of the table, keeps it as a dead letter, and can heal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
LARGEST = 2**63 - 1


def test_lost_group_comes_back_when_it_fits(opened, tmp_path: Path, wait_until) -> None:
    file = tmp_path / "amounts.csv"
    file.write_text(f"k,v\na,{LARGEST}\nb,5\n")
    db = opened(tmp_path / "data")
    db.sql(f"CREATE TABLE sums AS SELECT k, SUM(v) AS s, COUNT(*) AS n FROM file://{file} GROUP BY k")
    sums = db.table("sums")
    assert sums.get("a").s == LARGEST

    with file.open("a") as lines:
        lines.write("a,10\nb,1\n")
    wait_until(lambda: sums.get("b").n == 2, 60)
    assert sums.get("a") is None
    letters = db.sql("SELECT reason, raw FROM dead_letters WHERE job = 'sums'").rows()
    assert [letter.raw for letter in letters] == [b'{"k": "a"}']

    db.close()
    db = opened(tmp_path / "data")
    sums = db.table("sums")
    with file.open("a") as lines:
        lines.write("a,1\nb,1\n")
    wait_until(lambda: sums.get("b").n == 3, 60)
    assert sums.get("a") is None, "a group that is lost does not begin again from nothing"

    file.write_text(f"k,v\na,{LARGEST - 100}\nb,5\na,10\nb,1\na,1\nb,1\n")
    wait_until(lambda: sums.get("a") is not None, 60)
    assert (sums.get("a").s, sums.get("a").n) == (LARGEST - 89, 3)
    assert len(db.sql("SELECT * FROM dead_letters WHERE job = 'sums'")) == 1
