"""Rows that cannot be computed go to dead_letters, one or many, whatever it is that they break."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


def dead(database, job: str) -> list[str]:
    found = database.sql(f"SELECT reason FROM dead_letters WHERE job = '{job}'").rows()
    return sorted(row[0] for row in found)


@pytest.mark.parametrize(
    ("name", "query", "good"),
    [
        ("many_rows", "SELECT a / b AS r, a / b + 1 AS s FROM {file} WHERE a >= 0", 1900),
        ("many_groups", "SELECT a % 7 AS g, SUM(a / b) AS s, COUNT(*) AS n FROM {file} GROUP BY a % 7", 1900),
    ],
)
def test_a_hundred_of_two_thousand(database, tmp_path: Path, name, query, good):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "".join(f"{number},{number % 20}\n" for number in range(2000)))
    began = time.monotonic()
    database.sql(f"CREATE TABLE {name} AS {query.format(file=f'file://{path}')}")
    assert time.monotonic() - began < 120
    reasons = dead(database, name)
    assert len(reasons) == 100
    assert all("division by zero" in reason for reason in reasons)
    count = "COUNT(*)" if name == "many_rows" else "SUM(n)"
    assert database.sql(f"SELECT {count} FROM {name}").rows() == [(good,)]


@pytest.mark.parametrize(
    ("name", "expression", "reason"),
    [
        ("remainders", "a % b", "remainder by zero"),
        ("overflows", "CAST(a AS TINYINT) + CAST(b + 125 AS TINYINT)", "overflow"),
        ("maps", "map(a, 1, b, 2)", "duplicate map key"),
        ("functions", "refuse_zero(b)", "zero is refused"),
    ],
)
def test_every_kind_of_data_error(database, tmp_path: Path, name, expression, reason):
    if name == "functions":

        @database.udf
        def refuse_zero(value: int) -> int:
            if value == 0:
                raise ValueError("zero is refused")
            return value

    bad = {"overflows": "9,2", "maps": "3,3"}.get(name, "7,0")
    path = tmp_path / "rows.csv"
    path.write_text(f"a,b\n5,2\n{bad}\n1,1\n" if name != "maps" else f"a,b\n5,2\n{bad}\n1,2\n")
    if name == "overflows":
        path.write_text(f"a,b\n0,1\n{bad}\n1,1\n")
    database.sql(f"CREATE TABLE {name} AS SELECT {expression} AS r FROM file://{path}")
    assert len(database.table(name)) == 2
    (found,) = dead(database, name)
    assert reason in found
