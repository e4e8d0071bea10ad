"""Tables in Delta Lake: the same results as in memory, and no more of them in the driver than a part."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from refusals import refusal
from velostream.engine.delta import maintenance, runner
from velostream.errors import LaggingReaderError
from velostream.runtime.instance import Instance

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]

STATEMENTS = {
    "copied": "SELECT * FROM {file}",
    "keyed": 'SELECT id, grp, v FROM {file} WITH ("key" = "id")',
    "sums": "SELECT grp, COUNT(*) n, SUM(v) s, MAX(v) AS m FROM {file} GROUP BY grp HAVING COUNT(*) > 1",
    "joined": "SELECT DISTINCT k.id, s.s FROM {keyed} k JOIN {sums} s ON k.grp = s.grp WHERE k.v > 2",
    "best": "SELECT id, v FROM {keyed} ORDER BY v DESC, id LIMIT 3",
    "looked_up": "SELECT l.id, k.v FROM {log} l JOIN {fixed} k ON l.id = k.id",
}


def _with(statement: str, storage: str) -> str:
    query, _, given = statement.partition(" WITH (")
    given = given.rstrip(")")
    options = [*([given] if given else []), f'"table.storage" = "{storage}"']
    if "file://" in query:
        options.append('"file.debounce" = "20ms"')
    return f"{query} WITH ({', '.join(options)})"


def _write(path: Path, rows: dict[int, tuple[str, str]]) -> None:
    other = path.with_suffix(".new")
    lines = (f"{number},{grp},{v}\n" for number, (grp, v) in rows.items())
    other.write_text("id,grp,v\n" + "".join(lines))
    other.replace(path)


def _content(database: Instance, name: str) -> Counter[tuple[object, ...]]:
    return Counter(map(tuple, database.table(name).rows()))


def test_results_equal_those_of_tables_in_memory(database, tmp_path, rng):
    file, log = tmp_path / "edited.csv", tmp_path / "log.csv"
    rows = {n: (rng.choice("abc"), f"{n % 7}.{n % 10}0") for n in range(1, 15)}
    _write(file, rows)
    log.write_text("id\n3\n4\n")
    for storage in ("memory", "delta"):
        database.sql(
            f"CREATE TABLE {storage}_fixed (id BIGINT PRIMARY KEY, v STRING) "
            f'WITH ("table.storage" = "{storage}")'
        )
        database.table(f"{storage}_fixed").insert([(n, f"v{n}") for n in range(20)])
        for name, statement in STATEMENTS.items():
            others = {other: f"{storage}_{other}" for other in ("keyed", "sums", "fixed")}
            text = statement.format(file=f"file://{file}", log=f"file://{log}", **others)
            database.sql(f"CREATE TABLE {storage}_{name} AS {_with(text, storage)}")
    for change in range(2):
        if change:
            for number in rng.sample(sorted(rows), 3):
                del rows[number]
            rows |= {
                n: (rng.choice("abcd"), f"{rng.randrange(9)}.50") for n in range(change * 12, change * 12 + 4)
            }
            _write(file, rows)
            with log.open("a") as out:
                out.write(f"{change + 4}\n")
        assert database.wait_idle(240)
        for name in STATEMENTS:
            assert _content(database, f"delta_{name}") == _content(database, f"memory_{name}"), name
    assert len(database.table("delta_copied")) == len(rows)
    assert not [job for job in database.jobs() if job.stats.errors]
    # A question over both kinds of table, and the same in memory.
    mixed = "SELECT k.id, s.n FROM {} k JOIN {} s ON k.grp = s.grp"
    answer = database.sql(mixed.format("delta_keyed", "memory_sums"))
    assert answer.engine == "spark"
    expected = database.sql(mixed.format("memory_keyed", "memory_sums"))
    assert Counter(map(tuple, answer.rows())) == Counter(map(tuple, expected.rows()))


def test_a_table_filled_by_hand_is_changed_and_read_in_every_way(database):
    database.sql(
        "CREATE TABLE hand (id INT, `full name` STRING, v DECIMAL(10,2), PRIMARY KEY (id)) "
        'WITH ("table.storage" = "delta")'
    )
    table = database.table("hand")
    assert (len(table), table.version, table.page(), table.get(1)) == (0, 0, [], None)
    following = table.changes(timeout=60)
    database.sql("INSERT INTO hand VALUES (1, 'one', 1.5), (2, 'two', 2.5), (3, NULL, 3.5)")
    with refusal("sql.key_exists", "id = 2"):
        database.sql("INSERT INTO hand VALUES (2, 'again', 0)")
    database.sql("UPDATE hand SET v = v + 1 WHERE id >= 2")
    database.sql("DELETE FROM hand WHERE id = 1")
    assert table.upsert([(4, "four", Decimal("4.00")), (2, "zwei", Decimal("3.50"))]) == 2
    assert table.get(2) == (2, "zwei", Decimal("3.50"))
    assert table.get_many([4, 1, "no key", 3]) == [
        (4, "four", Decimal(4)),
        None,
        None,
        (3, None, Decimal("4.50")),
    ]
    assert table.update(3, v=Decimal("9.99")) == table.delete([4, 77]) == 1
    assert (len(table), table.count(), table.count("v > 5"), table.scalar("SUM(v)")) == (
        2,
        2,
        1,
        Decimal("13.49"),
    )
    assert table.column_values("full name", "id = 2") == ["zwei"]
    assert [row.id for row in table.page(1, 1)] == [3]
    assert table.snapshot().num_rows == sum(batch.num_rows for batch in table.stream()) == 2
    seen: Counter[tuple[object, ...]] = Counter()
    while following.version < table.version:
        _, rows = next(following)
        for row in rows.to_pylist():
            seen[row["id"], row["full name"], row["v"]] += row["_weight"]
    assert +seen == Counter(map(tuple, table.rows()))
    assert min(seen.values()) == 0
    assert table.stats().record_count == 2
    assert table.stats().bytes == 0
    database.sql("DELETE FROM hand")
    assert (len(table), table.page()) == (0, [])


@pytest.fixture
def collected(monkeypatch) -> list[int]:
    """How many rows each answer of Spark's brought into the driver."""
    from pyspark.sql.classic.dataframe import DataFrame

    counts: list[int] = []
    original = DataFrame.toArrow

    def counting(frame: DataFrame) -> pa.Table:
        table = original(frame)
        counts.append(table.num_rows)
        return table

    monkeypatch.setattr(DataFrame, "toArrow", counting)
    return counts


def test_the_driver_holds_a_part_at_a_time(database, tmp_path, collected, monkeypatch):
    monkeypatch.setattr(runner, "PART_ROWS", 400)
    monkeypatch.setattr("velostream.engine.inputs.feed.MOST_ROWS", 400)
    file = tmp_path / "large.csv"
    rows = {n: (f"g{n // 2}", f"{n}.00") for n in range(1500)}
    _write(file, rows)
    for name, query in {
        "large": f'SELECT id, grp, v FROM file://{file} WITH ("key" = "id")',
        "groups": f"SELECT grp, SUM(v) AS s FROM file://{file} GROUP BY grp",
        "above": "SELECT grp, COUNT(*) AS n FROM large GROUP BY grp",
    }.items():
        database.sql(f"CREATE TABLE {name} AS {_with(query, 'delta')}")
    rows |= {n: (f"g{n // 2}", f"{n}.50") for n in range(1000, 2000)}
    _write(file, rows)
    assert database.wait_idle(240)
    # 400 rows in a part on average: its size is decided by a hash.
    assert 0 < max(collected) < 600, sorted(collected)[-5:]
    assert len(database.table("large")) == 2000
    assert len(database.table("groups")) == len(database.table("above")) == 1000
    total = sum(Decimal(v) for _, v in rows.values())
    assert database.table("groups").scalar("SUM(s)") == database.table("large").scalar("SUM(v)") == total
    assert database.table("above").count("n = 2") == 1000
    assert sum(batch.num_rows for batch in database.table("large").stream()) == 2000
    assert max(collected) < 600


def test_restart_replace_verify_tidy_and_drop(opened, tmp_path, monkeypatch):
    file = tmp_path / "in.csv"
    rows = {n: ("a", f"{n}.00") for n in range(10)}
    _write(file, rows)
    first = opened(tmp_path / "data")
    query = _with(f'SELECT id, v FROM file://{file} WITH ("key" = "id")', "delta")
    first.sql(f"CREATE TABLE kept AS {query}")
    first.close()
    rows[3] = ("b", "33.00")
    _write(file, rows)
    with Instance(first.settings, read_only=True) as reader:
        assert len(reader.table("kept")) == 10
        assert reader.sql("SHOW TABLES").rows()[-1].rows == 10
    second = opened(tmp_path / "data")
    assert second.wait_idle(240)
    table = second.table("kept")
    assert (table.version, table.get(3).v, len(table)) == (2, Decimal("33.00"), 10)
    # Nothing was doubled, and the changes go back to before the restart.
    assert [tuple(row.values()) for row in table.changes_between(1, 2).to_pylist()] == [
        (3, Decimal("3.00"), -1),
        (3, Decimal("33.00"), 1),
    ]
    monkeypatch.setattr(maintenance, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(maintenance, "MANY_FILES", 1)
    files = set((tmp_path / "data" / "tables" / "kept" / "rows").glob("*.parquet"))
    table.checkpoint()
    left = set((tmp_path / "data" / "tables" / "kept" / "rows").glob("*.parquet"))
    assert len(left) == 1
    assert not left & files
    assert (table.version, table.get(3).v, len(table)) == (2, Decimal("33.00"), 10)
    with pytest.raises(LaggingReaderError):
        table.changes_between(0, 2)
    assert all(report.good for report in second.verify())
    (only,) = left
    only.write_bytes(only.read_bytes()[:-20])
    damaged = {report.name: report for report in second.verify()}["kept"]
    assert "damaged" in damaged.problem
    second.sql(f"CREATE OR REPLACE TABLE kept AS {query.replace('id, v', 'id, v * 2 AS v')}")
    assert second.table("kept").get(3).v == Decimal("66.00")
    assert all(report.good for report in second.verify())
    plan = second.explain(f"CREATE TABLE other AS {query}")
    assert "table other, delta" in plan
    assert "Spark job" in plan
    plan = second.explain("CREATE TABLE other AS SELECT v, COUNT(*) AS n FROM kept GROUP BY v")
    assert "storage: delta; a lookup is a Spark job" in plan
    assert "engine: spark" in second.explain("SELECT * FROM kept")
    second.sql("DROP TABLE kept")
    assert not list((tmp_path / "data" / "tables").glob("kept*"))


def test_a_column_that_widens_and_a_row_that_cannot_be_computed(opened, tmp_path):
    file = tmp_path / "in.csv"
    file.write_text("id,n\n1,10\n2,5\n")
    database = opened(tmp_path / "data")
    database.sql(
        f"CREATE TABLE shares AS {_with(f'SELECT id, 100 / n AS share, n FROM file://{file}', 'delta')}"
    )
    database.sql(f"CREATE TABLE over AS {_with('SELECT n FROM shares', 'delta')}")
    with file.open("a") as out:
        out.write("3,0\n4,9000000000000\n")
    assert database.wait_idle(240)
    assert Counter(database.table("shares").column_values("n")) == Counter([10, 5, 9000000000000])
    assert Counter(database.table("over").column_values("n")) == Counter([10, 5, 9000000000000])
    assert [row.job for row in database.sql("SELECT job FROM dead_letters").rows()] == ["shares"]


def test_what_a_table_in_delta_lake_does_not_do_is_told_at_creation(database):
    with refusal("table", "MAP<STRING, INT>"):
        database.sql('CREATE TABLE mapped (m MAP<STRING, INT>) WITH ("table.storage" = "delta")')
    with refusal("sql.unsupported", why="age out"):
        database.sql('CREATE TABLE aged (id INT) WITH ("table.storage" = "delta", "retention" = "1h")')
    database.sql('CREATE TABLE seen (id INT, at TIMESTAMP) WITH ("table.storage" = "delta")')
    with refusal("sql.unsupported", why="clock"):
        database.sql("CREATE TABLE recent AS SELECT * FROM seen WHERE at > now() - INTERVAL '1' HOUR")
    assert not {"mapped", "aged", "recent"} & {row.name for row in database.sql("SHOW TABLES").rows()}
