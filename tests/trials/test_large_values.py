"""Expressions that would make values larger than memory can take."""

from __future__ import annotations

import pytest

import velostream
from velostream.errors import SqlError


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
    with velostream.connect(tmp_path / "data") as database:
        database.create_table("t", [{"id": 1, "s": "a"}])
        for statement in (
            f"SELECT {expression} AS x FROM t",
            f"CREATE TABLE u AS SELECT {expression} AS x FROM t",
            f"INSERT INTO t SELECT 1, CAST({expression} AS STRING) FROM t",
        ):
            with pytest.raises(SqlError, match=r"would make [\d,]+ (characters|elements)"):
                database.sql(statement)
        for usual in (
            "repeat('x', 100)",
            "lpad(s, id)",
            "sequence(10, 1, -3)",
            "space(-1)",
            "sequence(id, 5)",
        ):
            database.check(f"SELECT {usual} FROM t")
