"""Expressions that would make values larger than memory can take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from refusals import refusal
from velostream.runtime.instance import open_instance

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from velostream.runtime.instance import Instance


@pytest.mark.parametrize(
    "expression",
    [
        "repeat('x', 2000000000)",
        "repeat(s, 1000 * 1000 * 1000)",
        "repeat(repeat('x', 10000), 10000)",
        "lpad(s, 2000000000)",
        "rpad(s, 2000000000, 'y')",
        "space(2000000000)",
        "sequence(1, 10000000000)",
        "size(sequence(-1000000000, 1000000000, 2))",
        "array_repeat(id, 1000000000)",
    ],
)
def test_a_value_that_is_too_large_is_refused_at_once(tmp_path, expression: str) -> None:
    with open_instance(tmp_path / "data") as database:
        database.create_table("t", [{"id": 1, "s": "a"}])
        for statement in (
            f"SELECT {expression} AS x FROM t",
            f"CREATE TABLE u AS SELECT {expression} AS x FROM t",
            f"INSERT INTO t SELECT 1, CAST({expression} AS STRING) FROM t",
        ):
            with refusal("sql", why="would make"):
                database.sql(statement)
        for usual in (
            "repeat('x', 100)",
            "lpad(s, id)",
            "sequence(10, 1, -3)",
            "space(-1)",
            "sequence(id, 5)",
        ):
            database.check(f"SELECT {usual} FROM t")


@pytest.mark.spark
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    "expression",
    [
        "repeat(s, n)",
        # Spark fills gigabytes each time before it fails: minutes until the row is found.
        pytest.param("lpad(s, n)", marks=pytest.mark.soak),
    ],
)
def test_a_row_that_asks_for_too_large_a_value_is_a_letter(
    opened: Callable[[Path], Instance], tmp_path: Path, wait_until, expression: str
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("s,n\nab,2\n")
    database = opened(tmp_path / "data")
    database.sql(f"CREATE TABLE t AS SELECT n, {expression} AS x FROM file://{source}")
    database.sql(f"CREATE TABLE other AS SELECT s, COUNT(*) AS c FROM file://{source} GROUP BY s")
    with source.open("a") as out:
        out.write("ab,2147483000\nab,3\n")
    wait_until(lambda: database.table("t").count() == 2, 900)
    assert database.wait_idle(120)
    assert sorted(row.n for row in database.table("t").rows()) == [2, 3]
    letters = [row.reason for row in database.table("dead_letters").rows() if row.job == "t"]
    assert len(letters) == 1, letters
    assert list(database.table("other").rows()) == [("ab", 3)]
