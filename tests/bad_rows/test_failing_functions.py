"""A function of the user's that raises is named, with its arguments, wherever it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from velostream.errors import JobError, SourceDataError

if TYPE_CHECKING:
    from pathlib import Path

    from velostream.runtime.instance import Instance

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]
WHY = "a Python function raised: half(7, 'odd one'): ValueError: 7 cannot be halved"


@pytest.fixture
def half(database: Instance) -> None:
    @database.udf
    def half(value: int, word: str) -> int:
        if value % 2:
            raise ValueError(f"{value} cannot\nbe halved")
        return value // 2


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "rows.csv"
    path.write_text("value,word\n4,even\n7,odd one\n6,even\n")
    return f"file://{path}"


def letters(database: Instance, job: str) -> list[tuple[str, bytes]]:
    return [
        tuple(row) for row in database.sql(f"SELECT reason, raw FROM dead_letters WHERE job = '{job}'").rows()
    ]


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize(
    "query",
    [
        "SELECT half(value, word) AS h FROM {}",
        "SELECT half(value, word) AS h, COUNT(*) AS n FROM {} GROUP BY half(value, word)",
        "SELECT word, SUM(half(value, word)) AS s FROM {} GROUP BY word",
    ],
    ids=["rows", "groups", "sums"],
)
def test_over_a_source(database: Instance, rows: str, name: str, query: str) -> None:
    job = f"{name}_{abs(hash(query)) % 10_000}"
    database.sql(f"CREATE TABLE {job} AS {query.format(rows)}")
    ((reason, raw),) = letters(database, job)
    assert reason == WHY
    assert raw == b"7,odd one"


@pytest.mark.usefixtures("half")
def test_over_a_table_and_asked_once(database: Instance, rows: str, name: str) -> None:
    database.sql(f"CREATE TABLE {name} AS SELECT * FROM {rows}")
    database.sql(f"CREATE TABLE {name}_d AS SELECT half(value, word) AS h FROM {name}")
    assert database.wait_idle(60)
    ((reason, raw),) = letters(database, f"{name}_d")
    assert reason == WHY
    assert b'"value":7' in raw
    with pytest.raises(JobError) as asked:
        database.sql(f"SELECT half(value, word) FROM {name}")
    assert asked.value.message == WHY


@pytest.mark.usefixtures("half")
def test_into_a_sink(database: Instance, rows: str, name: str, tmp_path: Path) -> None:
    database.sql(
        f"CREATE STREAM {name} AS SELECT half(value, word) AS h FROM {rows} "
        f"WITH (\"sink\" = 'file://{tmp_path}/out.jsonl')"
    )
    assert database.wait_idle(60)
    ((reason, _),) = letters(database, name)
    assert reason == WHY


@pytest.mark.usefixtures("half")
def test_where_a_bad_row_fails_the_job(database: Instance, rows: str, name: str) -> None:
    with pytest.raises(SourceDataError) as failed:
        database.sql(
            f'CREATE TABLE {name} AS SELECT half(value, word) AS h FROM {rows} WITH ("on.error" = "fail")'
        )
    assert WHY in str(failed.value)
    assert "7,odd one" in str(failed.value)
