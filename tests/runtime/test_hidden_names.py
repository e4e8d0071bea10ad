"""Every kind of table tells one key everywhere, and no name of ours reaches a user."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from refusals import refusal
from velostream.errors import TableError, VelostreamError

if TYPE_CHECKING:
    from pathlib import Path

    from velostream.runtime.instance import Instance

pytestmark = pytest.mark.spark

OURS = re.compile(r"\b__[a-z]|\b_position\b")
TRADES = (
    "symbol,price,ts\n"
    "A,5,2026-01-01T00:00:00\nB,7,2026-01-01T00:00:01\nA,1,2026-01-01T00:00:02\nA,4,2026-01-01T00:00:03\n"
)
TIMED = 'WITH ("event.time.column" = "ts")'
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    # how the table is made, and its key
    "groups": ("AS SELECT symbol, COUNT(*) AS n FROM {} GROUP BY symbol", ("symbol",)),
    "groups_hidden": ("AS SELECT COUNT(DISTINCT price) AS n FROM {} GROUP BY symbol", ()),
    "groups_half": ("AS SELECT symbol, COUNT(*) AS n FROM {} GROUP BY symbol, price % 5", ()),
    "groups_computed": ("AS SELECT lower(symbol) AS s, COUNT(*) AS n FROM {} GROUP BY symbol", ()),
    "groups_named": ("(s STRING, n BIGINT) AS SELECT symbol, COUNT(*) FROM {} GROUP BY symbol", ("s",)),
    "groups_cast": ("(s STRING, n INT) AS SELECT price, COUNT(*) FROM {} GROUP BY price", ()),
    "everything": ("AS SELECT COUNT(*) AS n FROM {}", ()),
    "having_": ("AS SELECT symbol, SUM(price) AS n FROM {} GROUP BY symbol HAVING n > 7", ("symbol",)),
    "tumbling_": (
        "AS SELECT symbol, COUNT(*) AS n FROM {} GROUP BY symbol"
        f" WINDOW TUMBLING(INTERVAL '2' SECOND) EMIT CHANGES {TIMED}",
        (),
    ),
    "bounds": (
        "AS SELECT symbol, window_start, window_end, COUNT(*) AS n FROM {} GROUP BY symbol"
        f" WINDOW SESSION(INTERVAL '1' SECOND) EMIT CHANGES {TIMED}",
        ("symbol", "window_start", "window_end"),
    ),
    "rows_": (f"AS SELECT symbol, AVG(price) AS a FROM {{}} WINDOW ROWS 2 PARTITION BY symbol {TIMED}", ()),
    "over_": (
        "AS SELECT symbol, SUM(price) OVER (PARTITION BY symbol ORDER BY ts) AS a FROM {}"
        ' WITH ("event.time.column" = "ts", "key" = "SYMBOL")',
        ("symbol",),
    ),
    "plain": ("AS SELECT symbol, price FROM {} WHERE price > 1", ()),
    "joined": ("AS SELECT t.symbol, p.name FROM {} t NATURAL JOIN hidden_people p", ()),
    "joined_groups": (
        "AS SELECT COUNT(*) AS n FROM hidden_groups_half h JOIN hidden_people p ON h.n = p.price - 4"
        " GROUP BY p.name",
        (),
    ),
    "over_half": ("AS SELECT symbol, n FROM hidden_groups_half", ()),
    "limited": ("AS SELECT symbol, n FROM hidden_groups ORDER BY n LIMIT 1", ("symbol",)),
    "aged": (
        "AS SELECT symbol, COUNT(*) AS n FROM {} WHERE ts > now() - INTERVAL 100000 DAY GROUP BY symbol",
        ("symbol",),
    ),
}
WRONG = [
    "SELECT nope FROM hidden_groups_half",
    "SELECT __k2 FROM hidden_groups_half",
    "SELECT symbol FROM {} WHERE nope > 1",
    "CREATE TABLE hidden_wrong AS SELECT nope, COUNT(*) FROM {} GROUP BY nope",
    "CREATE TABLE hidden_wrong AS SELECT symbol, COUNT(*) AS n FROM {} GROUP BY symbol, date_add(price, 'x')",
    "CREATE TABLE hidden_wrong AS SELECT a.symbol FROM {} a JOIN {} b ON a.symbol = b.symbol",
    "CREATE TABLE hidden_wrong AS SELECT COUNT(*) AS n FROM {} NATURAL JOIN {}",
    "CREATE TABLE hidden_wrong AS SELECT symbol FROM {} JOIN hidden_people ON price > hidden_people.price",
    "CREATE TABLE hidden_wrong AS SELECT symbol, COUNT(*) AS n FROM {} GROUP BY ROLLUP (symbol)",
    "CREATE TABLE hidden_wrong AS SELECT symbol, n FROM hidden_groups_half WHERE array(n) > 1",
    'CREATE TABLE hidden_wrong AS SELECT * FROM {} WITH ("key" = "nope")',
    "CREATE TABLE hidden_wrong AS SELECT DISTINCT symbol FROM {} ORDER BY rand()",
    "SELECT symbol FROM {} WHERE ts > 'now' GROUP BY window(ts, 'x')",
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("hidden") / "trades.csv"
    path.write_text(TRADES)
    return f"file://{path}"


@pytest.fixture(scope="module")
def kinds(database: Instance, source: str) -> Instance:
    database.sql("CREATE TABLE hidden_people (price BIGINT PRIMARY KEY, name STRING)")
    database.sql("INSERT INTO hidden_people VALUES (5, 'five'), (7, 'seven')")
    for name, (made, _) in KINDS.items():
        database.sql(f"CREATE TABLE hidden_{name} {made.format(source)}")
    return database


def said(error: VelostreamError) -> str:
    return f"{error} {error.message} {error.detail} {error.hint}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_tells_one_key_everywhere(kind: str, kinds: Instance, source: str) -> None:
    name, (made, key) = f"hidden_{kind}", KINDS[kind]
    table = kinds.table(name)
    listed = {row["name"]: row for row in kinds.sql("SHOW TABLES").arrow().to_pylist()}[name]
    described = kinds.sql(f"DESCRIBE {name}").arrow().to_pylist()
    assert tuple(row["column"] for row in described if row["key"]) == key
    assert listed["key"] == (", ".join(key) or None)
    rows = list(table.rows())
    assert listed["rows"] == len(table) == table.stats().record_count == len(rows)
    assert kinds.sql(f"SELECT COUNT(*) AS n FROM {name}").rows()[0].n == len(rows)
    if key:
        values = [tuple(getattr(row, column) for column in key) for row in rows]
        assert len(set(values)) == len(values)
        assert [table.get(*each) for each in values] == rows
        with pytest.raises(TableError) as caught:
            table.get(*range(len(key) + 1))
        assert not OURS.search(said(caught.value))
    else:
        with refusal("table", name, why="no key") as caught:
            table.get("A")
        assert caught.value.hint is not None
    told = [
        kinds.sql(f"EXPLAIN CREATE TABLE x {made.format(source)}").arrow(),
        kinds.sql(f"SHOW CREATE {name}").arrow(),
        kinds.sql("SHOW JOBS").arrow(),
        kinds.sql(f"SELECT * FROM {name}").arrow(),
        table.snapshot().schema,
        table.stats(),
        described,
        listed,
    ]
    for each in told:
        text = str(each.to_pylist()) + str(each.schema.names) if hasattr(each, "to_pylist") else str(each)
        assert not OURS.search(text), text


def test_a_table_over_one_without_a_key_keeps_all_rows(kinds: Instance) -> None:
    assert len(kinds.table("hidden_over_half")) == len(kinds.table("hidden_groups_half")) == 4


@pytest.mark.parametrize("sql", WRONG)
def test_no_name_of_ours_stands_in_an_error(sql: str, kinds: Instance, source: str) -> None:
    text = sql.replace("{}", source)
    with pytest.raises(VelostreamError) as caught:
        kinds.sql(text)
    # What the user wrote may be shown again.
    found = [name for name in OURS.findall(said(caught.value)) if name not in sql]
    assert not found, said(caught.value)
