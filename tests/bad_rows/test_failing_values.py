"""Whatever a value breaks, wherever in a query: its row is a dead letter, and the rest is as without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from velostream.engine.bad_rows.search import Search

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]

# The second value of each breaks it. Spark tells the error of some by name, of others by nothing but a text.
FAILING = {
    "size(sequence(1, 2, n))": (1, 0),
    "sequence(DATE'2026-01-01', DATE'2026-01-03', make_interval(0, 0, 0, CAST(n AS INT)))": (1, 0),
    "element_at(array(1, 2), CAST(n AS INT))": (1, 0),
    "array(1, 2)[n]": (1, 5),
    "size(array_repeat('a', CAST(n AS INT)))": (1, 2147483647),
    "1 / n": (1, 0),
    "1 % n": (1, 0),
    "n + 1": (1, 2**63 - 1),
    "CAST(n AS TINYINT)": (1, 1000),
    "CAST(n AS DECIMAL(38, 0)) * CAST(n AS DECIMAL(38, 0)) * n": (1, 2**63 - 1),
    "make_date(2026, CAST(n AS INT), 1)": (1, 13),
    "make_timestamp(2026, CAST(n AS INT), 1, 0, 0, 0)": (1, 13),
    "make_dt_interval(CAST(n AS INT), CAST(n AS INT))": (1, 2147483647),
    "timestamp_seconds(n)": (1, 2**63 - 1),
    "timestampadd(YEAR, CAST(n AS INT), TIMESTAMP'2026-01-01 00:00:00')": (1, 2147483647),
    "array_insert(array(1), CAST(n AS INT), 1)": (1, 0),
    "split_part('a', 'b', CAST(n AS INT))": (1, 0),
    "conv('99', 10, CAST(n AS INT)) + n": (16, 2**63 - 1),
    "bit_get(1, CAST(n AS INT))": (1, 400),
    "assert_true(n > 0)": (1, 0),
    "map(n, 1, 1, 2)": (2, 1),
    "map_from_arrays(array(1, n), array(1, 2))": (2, 1),
    "transform(array(n), y -> 1 / y)": (1, 0),
    "refuse_zero(n)": (1, 0),
    "to_date(s)": ("2026-01-01", "nonsense"),
    "to_date('2026-01-01', s)": ("yyyy-MM-dd", "nonsense"),
    "to_timestamp(s)": ("2026-01-01", "nonsense"),
    "date_format(DATE'2026-01-01', s)": ("yyyy", "nonsense"),
    "CAST(s AS INT)": ("1", "x"),
    "CAST(s AS BOOLEAN)": ("true", "x"),
    "from_json(s, 'a INT', map('mode', 'FAILFAST'))": ('{"a": 1}', "{"),
    "from_csv(s, 'a INT', map('mode', 'FAILFAST'))": ("1", "x"),
    "regexp_replace('a', s, 'b')": ("a", "("),
    "'a' RLIKE s": ("a", "("),
    "split('a', s)": ("a", "("),
    "format_string(s, 1)": ("%d", "%q"),
    "aes_decrypt(unhex('00'), s)": (None, "x"),
    "to_number(s, '999')": ("12", "x"),
    "to_binary(s, 'hex')": ("00", "xx"),
    "url_decode(s)": ("a", "%zz"),
    "parse_url(s, 'HOST')": ("http://a/b", "http://a b/"),
    "xpath_int(s, 'a')": ("<a>1</a>", "<a>1"),
    "decode(unhex('61'), s)": ("UTF-8", "nonsense"),
    "from_utc_timestamp(TIMESTAMP'2026-01-01 00:00:00', s)": ("UTC", "nonsense"),
    "parse_json(s)": ("1", "{"),
    "CASE WHEN n = 0 THEN raise_error('no') ELSE n END": (1, 0),
}


def test_functions_that_raise(spark, rng, rounds):
    """Each is found to fail at the one row that breaks it, by whatever Spark throws."""
    spark.udf.register("refuse_zero", lambda value: 1 // value, "bigint")
    wrong = {}
    for expression, (good, bad) in rng.sample([*FAILING.items()], rounds(10, len(FAILING))):
        column = "n" if isinstance(bad, int) else "s"
        other = pa.array([1, 1, 1], pa.int64()) if column == "s" else pa.array(["a"] * 3)
        kind = pa.int64() if column == "n" else pa.string()
        rows = {column: pa.array([good, bad, good], kind), "s" if column == "n" else "n": other}
        table = pa.table({**rows, "_position": ["p1", "p2", "p3"]})
        search = Search(spark, f"SELECT {expression} AS r FROM v", "v", "the rows")
        try:
            found = {
                culprit.position: culprit.row.reason
                for culprit in search.culprits(spark.createDataFrame(table))
            }
        except Exception as exc:
            wrong[expression] = str(exc)[:300]
            continue
        if [*found] != ["p2"] or not all(found.values()):
            wrong[expression] = found
    assert not wrong, wrong


QUERIES = {
    "selected": "SELECT id, {f} AS r FROM {t}",
    "filtered": "SELECT id FROM {t} WHERE {f} >= 0",
    "group_key": "SELECT {f} AS g, COUNT(*) AS n FROM {t} GROUP BY {f}",
    "aggregated": "SELECT COUNT(*) AS c, SUM({f}) AS n, percentile({f}, 0.5) AS p FROM {t}",
    "exploded": "SELECT id, v FROM {t} LATERAL VIEW explode(array({f}, 1)) AS v",
    "joined": "SELECT a.id, b.y FROM {t} a JOIN u b ON a.id = b.id AND {af} >= 0",
    "left_joined": "SELECT a.id, b.y FROM {t} a LEFT JOIN u b ON a.id = b.id AND {af} >= 0",
    "where_joined": "SELECT a.id, b.y FROM {t} a JOIN u b ON a.id = b.id WHERE {af} >= 0",
    "in_others": "SELECT id FROM {t} WHERE id IN (SELECT id FROM u) AND {f} >= 0",
    "over": "SELECT id, SUM({f}) OVER (PARTITION BY s ORDER BY id) AS r FROM {t}",
}
OF_TABLES = {
    "over_groups": "SELECT MAX(n) AS m FROM (SELECT s, SUM({f}) AS n FROM {t} GROUP BY s) q",
    "full_joined": "SELECT a.id, b.y FROM {t} a FULL JOIN u b ON a.id = b.id AND {af} + b.y >= 0",
    "over_all": "SELECT id, SUM({f}) OVER (ORDER BY id) AS r FROM {t}",
    "recomputed": "SELECT id, {f} AS r FROM {t} WHERE id NOT IN (SELECT id FROM u WHERE id = 1)",
}
GROUPS = {
    "having": "SELECT s, SUM(x) AS n FROM {t} GROUP BY s HAVING {sf} > 0",
    "from_sums": "SELECT s, {sf} AS n FROM {t} GROUP BY s",
}
ROWS = [(1, 1, "a"), (2, 0, "b"), (3, 2, "c"), (4, 1, "d")]
NAMED, UNNAMED = "1 / {}", "size(sequence(1, 2, {}))"


def text(query: str, failing: str, relation: str) -> str:
    parts = {"f": failing.format("x"), "af": failing.format("a.x"), "sf": failing.format("SUM(x)")}
    return query.format(t=relation, **parts)


@pytest.fixture(scope="module")
def tables(database):
    """The rows in a table, the same without the one that breaks, and a table to join to."""
    for name in ("t", "without"):
        database.sql(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, x BIGINT, s STRING)")
    database.table("t").insert(ROWS)
    database.table("without").insert([row for row in ROWS if row[1] != 0])
    database.create_table("u", [{"id": n, "y": 10 * n} for n in (1, 2, 3)])
    return database


def rows_of(database, name: str) -> list[tuple]:
    return sorted(map(tuple, database.table(name).rows()), key=repr)


def letters(database, name: str) -> list[str]:
    return [row[0] for row in database.sql(f"SELECT reason FROM dead_letters WHERE job = '{name}'").rows()]


def chosen(rng, places: dict[str, str], count: int) -> list[tuple[str, str]]:
    """Some places of a query, each with an error that has a name or with one that has none."""
    return rng.sample([(place, failing) for place in places for failing in (NAMED, UNNAMED)], count)


def test_of_a_file(tables, tmp_path: Path, rng, rounds):
    path = tmp_path / "t.csv"
    path.write_text("id,x,s\n" + "".join(f"{i},{x},{s}\n" for i, x, s in ROWS))
    places = QUERIES | GROUPS
    for place, failing in chosen(rng, places, rounds(5, 2 * len(places))):
        check(tables, f"file_{place}_{failing == NAMED}", places[place], failing, f"file://{path}")


def test_of_a_table(tables, rng, rounds):
    places = QUERIES | OF_TABLES | GROUPS
    for place, failing in chosen(rng, places, rounds(7, 2 * len(places))):
        check(tables, f"table_{place}_{failing == NAMED}", places[place], failing, "t")


def check(database, name: str, query: str, failing: str, relation: str) -> None:
    """One letter, and the rows of the same query over the rows without the one that breaks."""
    database.sql(f"CREATE TABLE {name} AS {text(query, failing, relation)}")
    assert database.wait_idle(60)
    (reason,) = letters(database, name)
    assert "division by zero" in reason or "llegal sequence" in reason
    expected = sorted(map(tuple, database.sql(text(query, failing, "without")).rows()), key=repr)
    assert rows_of(database, name) == expected
    assert str(database.job(name).info.state) == "running"


@pytest.mark.parametrize("place", ["left_joined", "over_groups", "from_sums"])
def test_a_row_that_breaks_later_and_is_mended(tables, wait_until, place):
    """What a table shows is always what its query gives over the rows that can be computed."""
    query = (QUERIES | OF_TABLES | GROUPS)[place]
    source, name = f"later_{place}", f"result_{place}"
    table = tables.create_table(source, [{"id": 1, "x": 1, "s": "a"}, {"id": 2, "x": 2, "s": "a"}], key="id")
    tables.sql(f"CREATE TABLE {name} AS {text(query, UNNAMED, source)}")

    def shows(expected: list[dict]) -> None:
        asked = text(query, UNNAMED, "given")
        given = tables.create_table("given", expected, key="id", schema=table.spec.visible_schema)
        try:
            wanted = sorted(map(tuple, tables.sql(asked).rows()), key=repr)
        finally:
            tables.sql("DROP TABLE given")
        assert given is not None
        wait_until(lambda: rows_of(tables, name) == wanted)

    shows([{"id": 1, "x": 1, "s": "a"}, {"id": 2, "x": 2, "s": "a"}])
    table.insert({"id": 3, "x": 0, "s": "c"})
    wait_until(lambda: len(letters(tables, name)) == 1)
    shows([{"id": 1, "x": 1, "s": "a"}, {"id": 2, "x": 2, "s": "a"}])
    table.insert({"id": 4, "x": 5, "s": "d"})
    shows([{"id": 1, "x": 1, "s": "a"}, {"id": 2, "x": 2, "s": "a"}, {"id": 4, "x": 5, "s": "d"}])
    table.update(3, x=3)
    rest = [{"id": 3, "x": 3, "s": "c"}, {"id": 4, "x": 5, "s": "d"}]
    shows([{"id": 1, "x": 1, "s": "a"}, {"id": 2, "x": 2, "s": "a"}, *rest])
    table.delete([1])
    shows([{"id": 2, "x": 2, "s": "a"}, *rest])
    assert len(letters(tables, name)) == 1
