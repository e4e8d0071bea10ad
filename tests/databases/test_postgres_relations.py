"""Which table a message is about, and what becomes of a table without a message of it."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from refusals import refusal
from velostream.connectors.postgres.read import changes

if TYPE_CHECKING:
    from shops import Shop
    from tests.conftest import WaitUntil
    from tests.databases.conftest import Same

    from velostream import Database

pytestmark = [pytest.mark.spark, pytest.mark.sampled(2)]
EVERY = '"cdc" = "true", "publication.name" = "everything"'


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is looked at often."""
    monkeypatch.setattr(changes, "LOOK_EVERY", 0.3)


@pytest.fixture
def parted(shop: Shop) -> None:
    """A partitioned table, one of whose partitions was made apart, with its columns in another order."""
    shop.sql.execute("CREATE TABLE parted (id int PRIMARY KEY, a text, b text) PARTITION BY RANGE (id)")
    shop.sql.execute("CREATE TABLE part_0 PARTITION OF parted FOR VALUES FROM (0) TO (100)")
    shop.sql.execute("CREATE TABLE part_100 (gone int, b text, a text, id int NOT NULL)")
    shop.sql.execute("ALTER TABLE part_100 DROP gone")
    shop.sql.execute("ALTER TABLE parted ATTACH PARTITION part_100 FOR VALUES FROM (100) TO (200)")
    shop.sql.execute("INSERT INTO parted SELECT n, 'a' || n, 'b' || n FROM generate_series(0, 199, 20) n")


def test_other_tables_of_a_publication_are_not_ours(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    shop.sql.execute(
        "CREATE TABLE alike (id bigint PRIMARY KEY, customer int, amount numeric(12,2), note text)"
    )
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    shop.follow(db, properties=EVERY)
    same()
    with shop.sql.transaction():
        shop.sql.execute("INSERT INTO orders VALUES (2, 2, 2, 'y')")
        shop.sql.execute("INSERT INTO alike VALUES (1, 9, 9, 'not ours'), (5, 9, 9, 'not ours')")
        shop.sql.execute("UPDATE customers SET city = 'Rome'")
        shop.sql.execute("UPDATE orders SET note = 'z' WHERE id = 1")
    shop.sql.execute("TRUNCATE alike")
    shop.sql.execute("DELETE FROM customers")
    shop.sql.execute("INSERT INTO orders VALUES (3, 3, 3, 'last')")
    same()
    shop.sql.execute("TRUNCATE customers, orders")
    same()


def test_both_tables_of_a_publication(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("CREATE PUBLICATION everything FOR TABLE orders, customers")
    shop.follow(db, properties=EVERY)
    shop.follow(db, "customers", EVERY)
    shop.sql.execute("INSERT INTO orders SELECT n, n, n, 'x' FROM generate_series(1, 50) n")
    shop.sql.execute("UPDATE customers SET city = 'Rome' WHERE id < 5")
    same()
    same("SELECT * FROM customers")


@pytest.mark.parametrize("root", ["true", "false"])
def test_partitions_with_columns_in_another_order(
    db: Database, shop: Shop, parted: None, same: Same, root: str
) -> None:
    shop.sql.execute(
        f"CREATE PUBLICATION everything FOR ALL TABLES WITH (publish_via_partition_root = {root})"
    )
    shop.follow(db, "parted", EVERY)
    query = "SELECT id, a, b FROM parted"
    same(query)
    shop.sql.execute("UPDATE parted SET a = a || '!'")
    shop.sql.execute("INSERT INTO parted VALUES (1, 'a1', 'b1'), (101, 'a101', 'b101')")
    shop.sql.execute("UPDATE parted SET id = 102 WHERE id = 20")
    same(query)
    shop.sql.execute("TRUNCATE part_100")
    same(query)
    shop.sql.execute("TRUNCATE parted")
    shop.sql.execute("INSERT INTO parted VALUES (2, 'a1', 'b1'), (103, 'a101', 'b101')")
    same(query)


def test_partitions_come_and_go(db: Database, shop: Shop, parted: None, same: Same) -> None:
    """No message tells of rows that come and go with a partition."""
    shop.follow(db, "parted")
    query = "SELECT id, a, b FROM parted"
    same(query)
    shop.sql.execute("ALTER TABLE parted DETACH PARTITION part_100")
    same(query)
    shop.sql.execute("INSERT INTO part_100 (id, a, b) VALUES (150, 'while', 'apart')")
    shop.sql.execute("ALTER TABLE parted ATTACH PARTITION part_100 FOR VALUES FROM (100) TO (200)")
    same(query)
    shop.sql.execute("TRUNCATE part_100")
    same(query)
    shop.sql.execute("DROP TABLE part_0")
    same(query)
    shop.sql.execute("CREATE TABLE part_200 PARTITION OF parted FOR VALUES FROM (200) TO (300)")
    shop.sql.execute("INSERT INTO parted VALUES (222, 'a', 'b'), (123, 'c', 'd')")
    same(query)


def test_tables_that_inherit_are_refused(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    shop.follow(db)
    same()
    shop.sql.execute("CREATE TABLE special (extra int) INHERITS (orders)")
    shop.sql.execute("INSERT INTO special VALUES (1, 2, 2, 'child', 7)")
    db.wait_until(lambda: db.job("orders").state == "failed", timeout=30)
    assert "inherit" in (db.job("orders").reason or "")
    assert db.table("orders").get(1).note == "x"
    db.sql(f'CREATE TABLE polled AS SELECT * FROM {shop.uri("orders")} WITH ("poll.interval" = "100ms")')
    same("SELECT note FROM orders", "SELECT note FROM polled")


def test_tables_that_are_swapped_by_name(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("INSERT INTO orders SELECT n, n, n, 'x' FROM generate_series(1, 9) n")
    shop.follow(db)
    same()
    shop.sql.execute("CREATE TABLE fresh (LIKE orders INCLUDING ALL)")
    shop.sql.execute("INSERT INTO fresh SELECT n, n, n, 'x' FROM generate_series(5, 12) n")
    with shop.sql.transaction():
        shop.sql.execute("ALTER TABLE orders RENAME TO old")
        shop.sql.execute("ALTER TABLE fresh RENAME TO orders")
    same()
    shop.sql.execute("INSERT INTO old VALUES (100, 1, 1, 'to the old one')")
    shop.sql.execute("INSERT INTO orders VALUES (13, 1, 1, 'to the new one')")
    same()


def test_a_table_that_is_made_anew(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("INSERT INTO orders SELECT n, n, n, 'x' FROM generate_series(1, 9) n")
    shop.follow(db)
    same()
    with shop.sql.transaction():
        shop.sql.execute("DROP TABLE orders")
        shop.sql.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, customer int, amount numeric(12,2), note text)"
        )
        shop.sql.execute("INSERT INTO orders VALUES (3, 1, 1, 'new')")
    same()
    shop.sql.execute("INSERT INTO orders VALUES (4, 1, 1, 'followed')")
    same()


def test_a_table_that_is_renamed_is_not_followed_under_its_new_name(
    db: Database, shop: Shop, same: Same
) -> None:
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    shop.follow(db)
    same()
    shop.sql.execute("ALTER TABLE orders RENAME TO elsewhere")
    db.wait_until(lambda: '"orders"' in (db.job("orders").reason or ""), timeout=30)
    assert len(db.table("orders")) == 1
    shop.sql.execute("ALTER TABLE elsewhere RENAME TO orders")
    shop.sql.execute("INSERT INTO orders VALUES (2, 2, 2, 'again')")
    same(timeout=60)


def test_a_table_that_is_taken_out_of_its_publication(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("CREATE PUBLICATION everything FOR TABLE orders, customers")
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    shop.follow(db, properties=EVERY)
    same()
    shop.sql.execute("ALTER PUBLICATION everything DROP TABLE orders")
    db.wait_until(lambda: db.job("orders").state == "failed", timeout=30)
    assert "publication" in (db.job("orders").reason or "")


def test_our_own_publication_is_made_again(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    shop.follow(db)
    same()
    (name,) = shop.sql.execute("SELECT pubname FROM pg_publication").fetchone()
    shop.sql.execute(f"ALTER PUBLICATION {name} SET TABLE customers")
    shop.sql.execute("INSERT INTO orders VALUES (2, 2, 2, 'untold')")
    same()
    shop.sql.execute(f"DROP PUBLICATION {name}")
    shop.sql.execute("INSERT INTO orders VALUES (3, 3, 3, 'untold')")
    same()


@pytest.mark.parametrize(
    ("making", "told"),
    [
        ("FOR TABLE orders WHERE (id > 5)", "row filter"),
        ("FOR TABLE orders (id, note)", "customer"),
        ("FOR TABLE orders WITH (publish = 'insert, update')", "delete"),
    ],
)
def test_a_publication_that_leaves_something_out(db: Database, shop: Shop, making: str, told: str) -> None:
    shop.sql.execute(f"CREATE PUBLICATION everything {making}")
    with refusal("source.config", "everything", why=told):
        shop.follow(db, properties=EVERY)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE orders ALTER customer TYPE bigint USING customer * 100",
        "ALTER TABLE orders ALTER note TYPE text USING upper(note)",
        "ALTER TABLE orders ADD COLUMN token uuid DEFAULT gen_random_uuid()",
        "ALTER TABLE orders ADD COLUMN number serial",
        "ALTER TABLE orders ADD COLUMN paid boolean DEFAULT true",
    ],
)
@pytest.mark.parametrize("then", ["INSERT INTO orders VALUES (10, 1, 1, 'later')", None])
def test_rows_that_a_schema_change_rewrites(
    db: Database, shop: Shop, same: Same, change: str, then: str | None
) -> None:
    shop.sql.execute("INSERT INTO orders SELECT n, n, n, 'x' FROM generate_series(1, 5) n")
    shop.follow(db)
    same()
    shop.sql.execute(change)
    if then is not None:
        shop.sql.execute(then)
    names = "*" if "uuid" not in change else "id, customer, token::text"
    if then is not None or "ADD COLUMN" not in change:
        same(f"SELECT {names} FROM orders", f"SELECT {names.removesuffix('::text')} FROM orders")


def test_what_only_moves_rows_is_not_read_again(
    db: Database, shop: Shop, same: Same, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    shop.sql.execute("INSERT INTO orders SELECT n, n, n, 'x' FROM generate_series(1, 5) n")
    shop.follow(db)
    same()
    for statement in (
        "VACUUM FULL orders",
        "INSERT INTO orders VALUES (6, 6, 6, 'y')",
        "ALTER TABLE orders ALTER note SET NOT NULL",
        "INSERT INTO orders VALUES (7, 7, 7, 'y')",
        "TRUNCATE orders",
        "INSERT INTO orders VALUES (8, 8, 8, 'z')",
    ):
        shop.sql.execute(statement)
        same()
    assert not [message for message in caplog.messages if "read again" in message]


def test_a_primary_key_that_is_replaced_stops_the_job(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("INSERT INTO orders SELECT n, n, n, 'x' FROM generate_series(1, 5) n")
    shop.follow(db)
    same()
    with shop.sql.transaction():
        shop.sql.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey")
        shop.sql.execute("ALTER TABLE orders ALTER customer SET NOT NULL, ADD PRIMARY KEY (customer)")
    shop.sql.execute("UPDATE orders SET id = 1")
    db.wait_until(lambda: db.job("orders").state == "failed", timeout=30)
    assert "primary key" in (db.job("orders").reason or "")


def test_a_primary_key_with_more_in_its_index(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("CREATE TABLE wide (id int, n int, PRIMARY KEY (id) INCLUDE (n))")
    shop.sql.execute("INSERT INTO wide VALUES (1, 1), (2, 2)")
    shop.follow(db, "wide")
    same("SELECT * FROM wide")
    shop.sql.execute("UPDATE wide SET n = n + 10")
    same("SELECT * FROM wide")
    assert db.table("wide").get(1) == (1, 11)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("char(4)", "'ab'"),
        ("boolean", "true"),
        ("inet", "'10.0.0.1'"),
        ("timestamptz", "'2024-01-02 03:04:05+02'"),
        ("bytea", "'\\x00ff'"),
        ("numeric(9,3)", "1.5"),
        ("varchar(9)", "'it''s \"{,'"),
    ],
)
def test_large_values_that_do_not_change_by_keys_of_any_type(
    db: Database, shop: Shop, same: Same, kind: str, value: str
) -> None:
    shop.sql.execute(
        f'CREATE TABLE large (id {kind}, "Part" int, small int, long text, padded char(9000), '
        'PRIMARY KEY (id, "Part"))'
    )
    shop.sql.execute("ALTER TABLE large ALTER long SET STORAGE EXTERNAL, ALTER padded SET STORAGE EXTERNAL")
    shop.sql.execute(f"INSERT INTO large VALUES ({value}, 1, 1, repeat('long', 5000), 'p')")
    shop.follow(db, "large")
    query = "SELECT small, length(long), length(padded::bpchar || '') > 0, octet_length(padded) FROM large"
    mine = "SELECT small, length(long), true, length(padded) FROM large"
    same(query, mine)
    shop.sql.execute("UPDATE large SET small = 2")
    same(query, mine)


def test_a_domain_with_digits(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("CREATE DOMAIN money_amount AS numeric(30,2)")
    shop.sql.execute("CREATE TABLE priced (id int PRIMARY KEY, price money_amount)")
    shop.sql.execute("INSERT INTO priced VALUES (1, 12345678901234567890.12)")
    shop.follow(db, "priced")
    same("SELECT * FROM priced")
    shop.sql.execute("UPDATE priced SET price = price + 1")
    same("SELECT * FROM priced")


@pytest.mark.parametrize("properties", ['"cdc" = "true"', '"poll.interval" = "50ms"'])
def test_domains_over_domains_and_arrays(db: Database, shop: Shop, same: Same, properties: str) -> None:
    for told in ("cents AS numeric(30,2)", "price AS cents CHECK (VALUE > 0)", "prices AS price[]"):
        shop.sql.execute(f"CREATE DOMAIN {told}")
    shop.sql.execute("CREATE TABLE odd (id int PRIMARY KEY, p price, ps price[], d prices, b box[], n int[])")
    values = "12345678901234567890.12, '{1.5,NULL}', '{2.25}', '{(3,4),(1,2);(5,6),(0,0)}', '{1,2}'"
    shop.sql.execute(f"INSERT INTO odd VALUES (1, {values})")
    shop.follow(db, "odd", properties)

    def told(id_: int) -> list[Any]:
        row = db.table("odd").get(id_)
        return [list(each) if isinstance(each, list | tuple) else each for each in row] if row else []

    expected = [
        *(Decimal("12345678901234567890.12"), [Decimal("1.50"), None], [Decimal("2.25")]),
        *(["(3,4),(1,2)", "(5,6),(0,0)"], [1, 2]),
    ]
    db.wait_until(lambda: told(1) == [1, *expected], timeout=30)
    shop.sql.execute(f"INSERT INTO odd VALUES (2, {values})")
    db.wait_until(lambda: told(2) == [2, *expected], timeout=30)


def test_generated_columns(db: Database, shop: Shop, same: Same) -> None:
    """The server does not send them with changes: they are computed there, for the rows that changed."""
    shop.sql.execute(
        "CREATE TABLE made (id int PRIMARY KEY, a numeric(9,2), b int, "
        "product numeric(12,3) GENERATED ALWAYS AS (a * b) STORED, "
        "told text GENERATED ALWAYS AS (upper('n ' || b::text)) STORED)"
    )
    shop.sql.execute("INSERT INTO made VALUES (1, 1.5, 2), (2, NULL, 3)")
    shop.follow(db, "made")
    same("SELECT * FROM made")
    shop.sql.execute("INSERT INTO made VALUES (3, 7, 7)")
    shop.sql.execute("UPDATE made SET b = b + 1, id = id + 10")
    shop.sql.execute("DELETE FROM made WHERE id = 12")
    same("SELECT * FROM made")
    db.sql(f'CREATE TABLE half AS SELECT id, a FROM {shop.uri("made")} WITH ("cdc" = "true")')
    shop.sql.execute("UPDATE made SET a = 8")
    same("SELECT id, a FROM made", "SELECT * FROM half")


def test_a_filter_does_not_stand_in_the_way_of_others(db: Database, shop: Shop, same: Same) -> None:
    """The application goes on updating and deleting, whatever columns the filter names."""
    shop.sql.execute(
        "ALTER TABLE orders ADD body text, ADD low boolean GENERATED ALWAYS AS (amount < 5) STORED"
    )
    shop.sql.execute("ALTER TABLE orders ALTER body SET STORAGE EXTERNAL")
    shop.sql.execute(
        "INSERT INTO orders SELECT n, n % 3, n, 'x%', repeat('long', 3000) || n % 2 "
        "FROM generate_series(1, 30) n"
    )
    shop.follow(db, properties='"cdc" = "true", "where" = "customer = 1 AND orders.note LIKE \'x%\' -- ok"')
    db.sql(
        f"CREATE TABLE ids AS SELECT id FROM {shop.uri('orders')} "
        'WITH ("cdc" = "true", "where" = "right(body, 1) = \'1\' OR low")'
    )
    query = "SELECT * FROM orders WHERE customer = 1"
    narrow = "SELECT id FROM orders WHERE right(body, 1) = '1' OR low"
    same(query, "SELECT * FROM orders")
    same(narrow, "SELECT * FROM ids")
    shop.sql.execute("UPDATE orders SET customer = (customer + 1) % 3")
    shop.sql.execute("UPDATE orders SET id = id + 100 WHERE id % 2 = 0")
    shop.sql.execute("DELETE FROM orders WHERE id % 5 = 0")
    same(query, "SELECT * FROM orders")
    same(narrow, "SELECT * FROM ids")
    shop.sql.execute("UPDATE orders SET amount = 1 - amount")
    same(narrow, "SELECT * FROM ids")


def test_a_long_transaction_after_one_of_another_table(db: Database, shop: Shop, same: Same) -> None:
    """The other one tells nothing of ours, and the log has only parts of ours: neither ends the other."""
    shop.sql.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    shop.follow(db, properties=EVERY)
    same()
    with shop.sql.pipeline():
        shop.sql.execute("UPDATE customers SET city = 'x'")
        shop.sql.execute("INSERT INTO orders SELECT n, n, n, 'x' FROM generate_series(1, 60000) n")
    seen: set[int] = set()
    db.wait_until(lambda: seen.add(len(db.table("orders"))) or 60000 in seen, timeout=60)
    assert seen <= {0, 60000}
