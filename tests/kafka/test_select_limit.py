"""SELECT with LIMIT over a source: it ends, with rows that are there now."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import pytest

from refusals import refusal
from velostream.runtime.answers.events import Answer, answers

if TYPE_CHECKING:
    from pathlib import Path

    from kafka_clients import Produce, Topics

    from velostream.runtime.instance import Instance

pytestmark = pytest.mark.spark


@pytest.fixture
def numbers(topic: Topics, produce: Produce) -> str:
    """A topic of twenty records in two partitions."""
    name = topic(2)
    produce(name, [(f"k{n}", {"n": n, "even": n % 2 == 0, "half": n / 2}) for n in range(20)])
    return name


def test_it_ends_also_where_a_select_would_follow(database: Instance, numbers: str) -> None:
    (event,) = answers(database, f"SELECT * FROM kafka://{numbers} LIMIT 5", follow=True, stop=Event())
    assert isinstance(event, Answer)
    rows = event.result
    assert rows.arrow().schema.names == ["n", "even", "half"]
    assert len(rows) == 5
    assert {row.n for row in rows} <= set(range(20))


def test_fewer_rows_than_asked_for(database: Instance, numbers: str) -> None:
    assert len(database.sql(f"SELECT n FROM kafka://{numbers} LIMIT 100")) == 20
    assert len(database.sql(f"SELECT n FROM kafka://{numbers} WHERE n > 15 LIMIT 100")) == 4
    assert len(database.sql(f"SELECT n FROM kafka://{numbers} LIMIT 0")) == 0


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("SELECT n FROM {} WHERE even ORDER BY n DESC LIMIT 3", [(18,), (16,), (14,)]),
        ("SELECT n FROM {} ORDER BY n LIMIT 2 OFFSET 3", [(3,), (4,)]),
        ("SELECT n AS x FROM {} ORDER BY x LIMIT 2", [(0,), (1,)]),
        ("SELECT n FROM {} t ORDER BY t.half DESC LIMIT 2", [(19,), (18,)]),
        ("SELECT n FROM {} ORDER BY _key LIMIT 2", [(0,), (1,)]),
        ("SELECT n, even FROM {} ORDER BY 2, 1 LIMIT 2", [(1, False), (3, False)]),
        ("SELECT even, COUNT(*) AS c FROM {} GROUP BY even ORDER BY SUM(n) LIMIT 1", [(True, 10)]),
        ("SELECT DISTINCT even FROM {} ORDER BY even LIMIT 5", [(False,), (True,)]),
        ("SELECT COUNT(*) AS c FROM {} LIMIT 1", [(20,)]),
    ],
)
def test_order_and_groups(
    database: Instance, numbers: str, select: str, expected: list[tuple[object, ...]]
) -> None:
    found = database.sql(select.format(f"kafka://{numbers}"))
    assert [tuple(row) for row in found] == expected


def test_system_columns_order_rows_and_are_not_shown(database: Instance, numbers: str) -> None:
    found = database.sql(f"SELECT * FROM kafka://{numbers} ORDER BY _partition, _offset DESC LIMIT 1")
    assert found.arrow().schema.names == ["n", "even", "half"]
    first = database.sql(
        f"SELECT _offset, n FROM kafka://{numbers} WHERE _partition = 0 ORDER BY _offset DESC LIMIT 1"
    )
    assert found.rows()[0].n == first.rows()[0].n


def test_parameters_and_named_sources(database: Instance, numbers: str) -> None:
    database.sql(f"CREATE SOURCE s_{numbers} (n BIGINT) FROM kafka://{numbers}")
    found = database.sql(
        f"SELECT n FROM s_{numbers} WHERE n >= :least ORDER BY n LIMIT :most", {"least": 7, "most": 2}
    )
    assert [row.n for row in found] == [7, 8]


def test_a_large_topic_is_not_read_whole(database: Instance, topic: Topics, produce: Produce) -> None:
    name = topic(2)
    produce(name, ({"n": n} for n in range(50_000)))
    assert len(database.sql(f"SELECT * FROM kafka://{name} LIMIT 3")) == 3


def test_files_answer_too(database: Instance, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,x\n2,y\n3,z\n")
    assert [tuple(row) for row in database.sql(f"SELECT * FROM file://{path} LIMIT 2")] == [
        (1, "x"),
        (2, "y"),
    ]


def test_what_is_missing_is_told(database: Instance, topic: Topics) -> None:
    with refusal("source.missing"):
        database.sql(f"SELECT * FROM kafka://{topic(0)} LIMIT 5")


def test_a_table_of_the_first_rows_of_a_source_is_still_refused(database: Instance, numbers: str) -> None:
    with refusal("sql.unsupported"):
        database.sql(f"CREATE TABLE first_{numbers} AS SELECT n FROM kafka://{numbers} WHERE n > 1 LIMIT 5")
