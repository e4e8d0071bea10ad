"""Tables, views and queries of ClickHouse, read once and polled."""

from __future__ import annotations

import math
import subprocess
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from shops import ours

import clickhouse_server
import velostream
from refusals import refusal
from velostream.config import Settings
from velostream.engine.opening.connect import open_source
from velostream.model.statements import SourceRef
from velostream.model.uri import Uri

if TYPE_CHECKING:
    from pathlib import Path

    from warehouses import Warehouse

    from clickhouse_server import ClickHouse
    from velostream import Database

pytestmark = [pytest.mark.spark, pytest.mark.sampled(2)]
OFTEN = '"poll.interval" = "50ms"'
CANARY = "cAn4ry-of-clickh0use"

LONG = Decimal("1.2345678901234567890123456789012345678")
WIDE = Decimal("1234567890123456789012345678.0123456789")
SUMMER, WINTER = datetime(2024, 7, 2, 1, 4, 5, tzinfo=UTC), datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)

KINDS: list[tuple[str, str, Any]] = [
    ("Int8", "-128", -128),
    ("UInt8", "255", 255),
    ("UInt16", "65535", 65535),
    ("UInt32", "4294967295", 4294967295),
    ("Int64", "-9223372036854775808", -(2**63)),
    ("UInt64", "18446744073709551615", Decimal(2**64 - 1)),
    ("Int128", "-99999999999999999999999999999999999999", Decimal("-" + "9" * 38)),
    ("UInt256", "12345678901234567890123456789012345678", Decimal(12345678901234567890123456789012345678)),
    ("Decimal(15, 2)", "'12345.67'", Decimal("12345.67")),
    ("Decimal(38, 37)", f"'{LONG}'", LONG),
    ("Decimal(50, 10)", f"'{WIDE}'", WIDE),
    ("Float32", "1.5", 1.5),
    ("Float64", "0.1", 0.1),
    ("Bool", "true", True),
    ("String", "'täxt \\'x\\' ☃'", "täxt 'x' ☃"),
    ("FixedString(5)", "'abc'", "abc"),
    ("LowCardinality(String)", "'low'", "low"),
    ("LowCardinality(Nullable(String))", "NULL", None),
    ("Nullable(Int32)", "NULL", None),
    ("Date", "'2024-02-29'", date(2024, 2, 29)),
    ("Date32", "'1950-01-01'", date(1950, 1, 1)),
    ("DateTime", "'2024-01-02 03:04:05'", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ("DateTime('Asia/Tokyo')", "'2024-01-02 03:04:05'", datetime(2024, 1, 1, 18, 4, 5, tzinfo=UTC)),
    ("DateTime64(3, 'Europe/Berlin')", "'2024-07-02 03:04:05.678'", SUMMER.replace(microsecond=678000)),
    ("DateTime64(9, 'UTC')", "'2024-01-02 03:04:05.123456789'", WINTER.replace(microsecond=123456)),
    ("Enum8('new' = 1, 'it\\'s, (old)' = 2)", "'it\\'s, (old)'", "it's, (old)"),
    ("UUID", "'61f0c404-5cb3-11e7-907b-a6006ad3dba0'", "61f0c404-5cb3-11e7-907b-a6006ad3dba0"),
    ("IPv4", "'10.0.0.1'", "10.0.0.1"),
    ("IPv6", "'2001:db8::1'", "2001:db8::1"),
    ("Array(Nullable(UInt64))", "[1, NULL]", [Decimal(1), None]),
    ("Array(Array(LowCardinality(String)))", "[['a'], []]", [["a"], []]),
    ("Tuple(x Int32, y Nullable(String))", "(1, NULL)", {"x": 1, "y": None}),
    ("Tuple(Int8, Date)", "(1, '2024-02-29')", {"_1": 1, "_2": date(2024, 2, 29)}),
    ("Map(String, Array(Decimal(9, 3)))", "map('k', [1.5])", {"k": [Decimal("1.500")]}),
    ("JSON", "'{\"a\":{\"b\":1}}'", '{"a":{"b":1}}'),
]  # fmt: skip


def plain(value: Any) -> Any:
    """A value without the classes of rows and maps."""
    if hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) and len(each) == 2 for each in value):
            return {name: plain(each) for name, each in value}
        return [plain(each) for each in value]
    return value


def test_every_type(db: Database, warehouse: Warehouse) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _, _) in enumerate(KINDS))
    warehouse.run(f"CREATE TABLE @kinds ({columns}) ENGINE = MergeTree ORDER BY tuple()")
    warehouse.run(f"INSERT INTO @kinds VALUES ({', '.join(value for _, value, _ in KINDS)})")
    warehouse.follow(db, "kinds")
    db.wait_until(lambda: len(db.table("kinds")) == 1, timeout=30)
    (row,) = db.sql("SELECT * FROM kinds").rows()
    found = {kind: plain(value) for (kind, _, _), value in zip(KINDS, row, strict=True)}
    assert found == {kind: wanted for kind, _, wanted in KINDS}


def test_nested_columns_and_not_a_number(db: Database, warehouse: Warehouse) -> None:
    warehouse.run(
        "CREATE TABLE @nested (f Float64, n Nested(x Int32, y String)) ENGINE = Memory",
        "INSERT INTO @nested VALUES (nan, [1, 2], ['a', 'b'])",
    )
    db.sql(f"CREATE TABLE nested AS SELECT f, `n.x` AS x, `n.y` AS y FROM {warehouse.uri('nested')}")
    db.wait_until(lambda: len(db.table("nested")) == 1, timeout=30)
    (row,) = db.sql("SELECT * FROM nested").rows()
    assert math.isnan(row.f)
    assert (list(row.x), list(row.y)) == ([1, 2], ["a", "b"])


def test_what_does_not_fit_is_a_dead_letter(db: Database, warehouse: Warehouse) -> None:
    warehouse.run(
        "CREATE TABLE @odd (id Int32, text String, n UInt256) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO @odd VALUES (1, 'fine', 1), (2, unhex('ff00'), 2), (3, 'large', exp10(60))",
    )
    warehouse.follow(db, "odd", OFTEN)
    db.wait_until(lambda: len(db.sql("SELECT * FROM dead_letters WHERE job = 'odd'").rows()) == 2, timeout=30)
    assert ours(db, "SELECT id FROM odd") == Counter([(1,)])
    letters = db.sql("SELECT raw, reason FROM dead_letters WHERE job = 'odd'").rows()
    assert any(b"\\xff" in row.raw and "text" in row.reason for row in letters)
    db.sql(
        "CREATE SOURCE bytes (id INT, text BINARY) FROM "
        f"{warehouse.query('SELECT id, text FROM @odd WHERE id < 3')}"
    )
    db.sql("CREATE TABLE raw AS SELECT * FROM bytes")
    db.wait_until(lambda: ours(db, "SELECT * FROM raw") == Counter([(1, b"fine"), (2, b"\xff\x00")]))


def test_the_difference_is_what_changed(db: Database, warehouse: Warehouse) -> None:
    warehouse.run(
        "CREATE TABLE @orders (id Int64, customer Int32, amount Decimal(12, 2)) "
        "ENGINE = MergeTree ORDER BY id",
        "INSERT INTO @orders SELECT number, number % 9, number / 4 FROM numbers(300)",
    )
    warehouse.follow(db, "orders", f'{OFTEN}, "key" = "id"')
    db.sql("CREATE TABLE total AS SELECT count(*) AS n, sum(amount) AS total FROM orders")

    def same() -> bool:
        mine, theirs = "SELECT * FROM orders", "SELECT id, customer, amount FROM @orders"
        return ours(db, mine) == warehouse.rows(theirs) and ours(db, "SELECT * FROM total") == warehouse.rows(
            "SELECT count(), sum(amount) FROM @orders"
        )

    db.wait_until(same, timeout=30)
    warehouse.run(
        "DELETE FROM @orders WHERE id < 10",
        "ALTER TABLE @orders UPDATE amount = 1000 WHERE id = 42 SETTINGS mutations_sync = 1",
        "INSERT INTO @orders VALUES (1000, 1, 99.99)",
    )
    db.wait_until(same, timeout=30)
    assert db.table("orders").get(42).amount == 1000


def test_by_a_column_that_grows(db: Database, warehouse: Warehouse, tmp_path: Path) -> None:
    warehouse.run(
        "CREATE TABLE @events (at DateTime64(9, 'UTC'), what String) ENGINE = MergeTree ORDER BY at",
        "INSERT INTO @events SELECT toDateTime64('2024-01-01 00:00:00.123456789', 9, 'UTC') + number, 'e' "
        "FROM numbers(50)",
    )
    properties = f'{OFTEN}, "incremental.column" = "at"'
    with velostream.connect(tmp_path / "other") as first:
        warehouse.follow(first, "events", properties)
        first.wait_until(lambda: len(first.table("events")) == 50, timeout=30)
    warehouse.run("INSERT INTO @events VALUES ('2025-01-01 00:00:00.000000001', 'late')")
    with velostream.connect(tmp_path / "other") as again:
        again.wait_until(lambda: len(again.table("events")) == 51, timeout=30)
        warehouse.run("INSERT INTO @events VALUES ('2025-01-01 00:00:01', 'last')")
        again.wait_until(lambda: len(again.table("events")) == 52, timeout=30)
        assert ours(again, "SELECT what, count(*) FROM events GROUP BY what") == warehouse.rows(
            "SELECT what, count() FROM @events GROUP BY what"
        )


def test_rows_without_a_key_by_a_column_that_grows(db: Database, warehouse: Warehouse) -> None:
    """Later rows may have the last value of before, here also where it is finer than what is read."""
    warehouse.run("CREATE TABLE @log (at DateTime64(9), line String) ENGINE = MergeTree ORDER BY at")
    warehouse.run("INSERT INTO @log VALUES ('2024-01-01 00:00:00.000000001', 'a'), ('2024-01-01', 'b')")
    warehouse.follow(db, "log", f'{OFTEN}, "incremental.column" = "at"')
    for count, line in enumerate(("c", "c", "d"), start=3):
        warehouse.run(f"INSERT INTO @log VALUES ('2024-01-01 00:00:00.00000000{count}', '{line}')")
        lines = "SELECT line FROM @log"
        db.wait_until(lambda lines=lines: ours(db, "SELECT line FROM log") == warehouse.rows(lines), 30)  # type: ignore[misc]


@pytest.mark.parametrize("more", ["", ', "incremental.column" = "id"'])
def test_columns_that_are_altered(db: Database, warehouse: Warehouse, more: str) -> None:
    warehouse.run("CREATE TABLE @t (id Int32, note String) ENGINE = MergeTree ORDER BY id")
    warehouse.run("INSERT INTO @t VALUES (1, 'a')")
    warehouse.follow(db, "t", OFTEN + more)

    def same() -> bool:
        return ours(db, "SELECT * FROM t") == warehouse.rows("SELECT * FROM @t")

    db.wait_until(same, timeout=30)
    warehouse.run("ALTER TABLE @t ADD COLUMN more Int64 DEFAULT 7", "INSERT INTO @t VALUES (2, 'b', 8)")
    db.wait_until(same, timeout=30)
    warehouse.run("ALTER TABLE @t DROP COLUMN note")
    db.wait_until(lambda: db.job("t").state == "failed", timeout=30)
    assert '"note"' in (db.job("t").reason or "")


def test_queries_with_parameters_and_of_ones_own(db: Database, warehouse: Warehouse) -> None:
    warehouse.run(
        "CREATE TABLE @log (n UInt64, day Date, line String) ENGINE = MergeTree ORDER BY n",
        "INSERT INTO @log SELECT number, '2024-01-01', '100%? {x}' FROM numbers(20)",
    )
    some = warehouse.query("SELECT n, line FROM @log WHERE n >= ? AND day >= ? AND line != '?'")
    db.sql(f'CREATE TABLE some AS SELECT * FROM {some} WITH ("query.params" = "[5, \\"2023-12-31\\"]")')
    db.wait_until(lambda: len(db.table("some")) == 15, timeout=30)
    one = warehouse.query("SELECT n FROM @log WHERE n = ?")
    db.sql(f'CREATE TABLE one AS SELECT * FROM {one} WITH ("query.params" = "7")')
    db.wait_until(lambda: ours(db, "SELECT n FROM one") == Counter([(7,)]), timeout=30)
    top = '"where" = "n < 10", "order.by" = "n DESC", "limit" = "3", "fetch.size" = "2"'
    db.sql(f"CREATE TABLE top AS SELECT n FROM {warehouse.uri('log')} WITH ({top})")
    db.wait_until(lambda: ours(db, "SELECT n FROM top") == Counter([(9,), (8,), (7,)]), timeout=30)
    query = f"SELECT * FROM {warehouse.name}.log WHERE n > ? ORDER BY n LIMIT 3"
    warehouse.follow(db, "log", f'{OFTEN}, "incremental.column" = "n", "poll.query" = "{query}"')
    warehouse.run("INSERT INTO @log SELECT 20 + number, '2024-01-02', 'more' FROM numbers(10)")
    db.wait_until(lambda: len(db.table("log")) == 30, timeout=30)


def test_views_and_distributed_tables(db: Database, warehouse: Warehouse) -> None:
    warehouse.run(
        "CREATE TABLE @hits (page String, ms UInt32) ENGINE = MergeTree ORDER BY page",
        "CREATE MATERIALIZED VIEW @pages ENGINE = SummingMergeTree ORDER BY page AS "
        "SELECT page, count() AS n, sum(ms) AS ms FROM @hits GROUP BY page",
        "CREATE VIEW @slow AS SELECT page FROM @hits WHERE ms > 100",
        f"CREATE TABLE @every AS @hits ENGINE = Distributed('all', '{warehouse.name}', 'hits')",
        "INSERT INTO @hits VALUES ('/', 10), ('/', 200)",
        "INSERT INTO @hits VALUES ('/', 30), ('/buy', 5)",
    )
    for name in ("pages", "slow", "every"):
        warehouse.follow(db, name, OFTEN)
    db.wait_until(lambda: ours(db, "SELECT * FROM every") == warehouse.rows("SELECT * FROM @hits"))
    # Not merged yet, and read as if it were.
    merged = "SELECT page, count() AS n, sum(ms) FROM @hits GROUP BY page"
    db.wait_until(lambda: ours(db, "SELECT * FROM pages") == warehouse.rows(merged), timeout=30)
    warehouse.run("INSERT INTO @hits VALUES ('/new', 500)")
    db.wait_until(lambda: ours(db, "SELECT * FROM pages") == warehouse.rows(merged), timeout=30)
    db.wait_until(lambda: ours(db, "SELECT * FROM slow") == warehouse.rows("SELECT * FROM @slow"), timeout=30)


def test_a_replacing_table_has_the_key_it_is_sorted_by(db: Database, warehouse: Warehouse) -> None:
    warehouse.run(
        "CREATE TABLE @users (id Int32, name String, v UInt64, gone UInt8) "
        "ENGINE = ReplacingMergeTree(v, gone) ORDER BY id",
        "INSERT INTO @users VALUES (1, 'ann', 1, 0), (2, 'bob', 1, 0)",
        "INSERT INTO @users VALUES (1, 'anna', 2, 0)",
    )
    warehouse.follow(db, "users", OFTEN)
    db.wait_until(lambda: ours(db, "SELECT id, name FROM users") == Counter([(1, "anna"), (2, "bob")]))
    warehouse.run("INSERT INTO @users VALUES (2, 'bob', 2, 1)")
    db.wait_until(lambda: db.table("users").get(2) is None and len(db.table("users")) == 1, timeout=30)


def test_several_readers_share_a_load(
    db: Database, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    from velostream.connectors.clickhouse.read import parts

    monkeypatch.setattr(parts, "LEAST_ROWS", 1000)
    warehouse.run("CREATE TABLE @large (n UInt32, text String) ENGINE = MergeTree ORDER BY n")
    for start in (0, 7000, 9000):
        warehouse.run(
            f"INSERT INTO @large SELECT {start} + number, toString(number) FROM numbers({start} + 500)"
        )
    warehouse.run("DELETE FROM @large WHERE n % 10 = 0")
    warehouse.follow(db, "large", '"parallel.readers" = "4"')
    query = "SELECT count(*), count(DISTINCT n), sum(n) FROM {}"
    db.wait_until(
        lambda: ours(db, query.format("large")) == warehouse.rows(query.format("@large")), timeout=30
    )


def test_a_server_that_was_away(clickhouse: ClickHouse, db: Database, warehouse: Warehouse) -> None:
    warehouse.run("CREATE TABLE @t (id Int32) ENGINE = MergeTree ORDER BY id", "INSERT INTO @t VALUES (1)")
    warehouse.follow(db, "t", OFTEN)
    db.wait_until(lambda: len(db.table("t")) == 1, timeout=30)
    clickhouse.stop()
    db.wait_until(lambda: db.table("t").stats().health != "healthy", timeout=30)
    assert len(db.table("t")) == 1
    clickhouse.start()
    warehouse.run("INSERT INTO @t VALUES (2)")
    db.wait_until(lambda: len(db.table("t")) == 2, timeout=60)


def test_mistakes_are_named(db: Database, warehouse: Warehouse) -> None:
    warehouse.run("CREATE TABLE @orders (id Int32, s AggregateFunction(sum, Int32)) ENGINE = Memory")
    make = "CREATE TABLE o AS SELECT * FROM"
    with refusal("source.missing", "ordrs") as missing:
        warehouse.follow(db, "ordrs")
    assert "orders" in missing.value.hint
    with refusal("source.config", "s", why="aggregate"):
        warehouse.follow(db, "orders")
    orders = warehouse.query("SELECT id FROM @orders")
    with refusal("source.config", "incremental.column", "nothing"):
        db.sql(f'{make} {orders} WITH ({OFTEN}, "incremental.column" = "nothing")')
    with refusal("source.config", "key", "nothing"):
        db.sql(f'{make} {orders} WITH ("key" = "nothing")')
    with refusal("source.config", "2 ? marks", "1 values"):
        db.sql(f'{make} {warehouse.query("SELECT ? + ? AS x")} WITH ("query.params" = "1")')
    with refusal("source.config", "nothing"):
        db.sql(f"{make} {warehouse.query('SELECT nothing FROM @orders')}")
    with refusal("sql.property", why="no log of changes"):
        db.sql(f'{make} {warehouse.uri("orders")} WITH ("cdc" = "true")')
    with refusal("source.missing", "nowhere"):
        db.sql(f"{make} {warehouse.server.uri('nowhere', 'orders')}")
    with refusal("source.network"):
        db.sql(f"{make} clickhouse://u@127.0.0.1:1/db?table=orders")
    with refusal("source.auth"):
        db.sql(f"{make} {warehouse.uri('orders').replace('secret', CANARY)}")


def test_a_secret_is_nowhere(
    warehouse: Warehouse, spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.run("CREATE TABLE @orders (id Int32) ENGINE = Memory", "INSERT INTO @orders VALUES (1)")
    config = tmp_path / "velostream.toml"
    config.write_text(
        f'[connections.shop]\nhost = "127.0.0.1"\nport = {warehouse.server.port}\n'
        f'database = "{warehouse.name}"\nusername = "default"\npassword = "${{env:SHOP_PASSWORD}}"\n'
    )
    told: list[str] = []
    monkeypatch.setenv("SHOP_PASSWORD", "secret")
    with velostream.connect(tmp_path / "data", config=config) as db:
        db.sql("CREATE TABLE orders AS SELECT * FROM clickhouse://shop/orders")
        db.wait_until(lambda: len(db.table("orders")) == 1, timeout=30)
        monkeypatch.setenv("SHOP_PASSWORD", CANARY)
        asked = ("SHOW JOBS", "SHOW CREATE orders", "DESCRIBE orders", "EXPLAIN SELECT * FROM orders")
        told += [str(db.sql(statement).rows()) for statement in asked]
        with pytest.raises(velostream.VelostreamError) as raised:
            db.sql("CREATE TABLE other AS SELECT * FROM clickhouse://shop/orders")
        told += [str(raised.value), str(raised.value.__cause__)]
    assert not [text for text in told if CANARY in text or "secret" in text]
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]


def test_a_query_that_takes_too_long(warehouse: Warehouse, tmp_path: Path) -> None:
    slow = warehouse.query("SELECT sum(sleepEachRow(0.5)) AS s FROM numbers(10) SETTINGS max_block_size = 1")
    source = open_source(
        SourceRef("__source_1", Uri(slow), {"query.timeout": "300ms"}),
        Settings(data_dir=tmp_path / "data"),
        tmp_path / "spool",
        known=None,
        once=True,
        table=True,
    )
    with refusal("source.network", why="Timeout"):
        source.latest(None)
    source.close()


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_tls(db: Database, tmp_path: Path) -> None:
    pem, command = (
        tmp_path / "server.pem",
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost",
    )
    made = [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*made, "-keyout", str(tmp_path / "key"), "-out", str(pem)], check=True, capture_output=True
    )
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(pem.read_bytes())
    pem.write_bytes(pem.read_bytes() + (tmp_path / "key").read_bytes())
    with clickhouse_server.running(tls=pem) as server:
        one = server.uri("default", "x").replace("?table=x", '?query="SELECT 1 AS n"')
        make = f"CREATE TABLE {{}} AS SELECT * FROM {one} WITH ({{}})"
        db.sql(make.format("a", f'"ssl.mode" = "verify-full", "ssl.root.cert" = "{trusted}"'))
        db.sql(make.format("b", '"ssl.mode" = "require"'))
        db.wait_until(lambda: len(db.table("a")) == len(db.table("b")) == 1, timeout=30)
        with refusal("source.network", why="ertificate"):
            db.sql(make.format("c", '"ssl.mode" = "verify-full"'))
        with refusal("source.network"):
            db.sql(make.format("d", '"ssl.mode" = "disable"'))
