"""Any SQL database, by its driver: files of SQLite and DuckDB, SQLAlchemy and JDBC over a real PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from shops import ours

import velostream
from refusals import refusal
from velostream.connectors.any_sql.drivers.base import Address, Connection, Driver
from velostream.connectors.any_sql.drivers.registry import forget_driver
from velostream.connectors.any_sql.values import decoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from shops import Shop
    from tests.databases.conftest import Same

    from velostream import Database
    from velostream.connectors.databases.text_rows import Decoded

pytestmark = pytest.mark.spark
OFTEN = '"poll.interval" = "50ms"'
CANARY = "cAn4ry-of-any-sql"


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    path = tmp_path / "app.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    yield connection
    connection.close()


def make(db: Database, name: str, uri: str, properties: str = "") -> None:
    db.sql(f"CREATE TABLE {name} AS SELECT * FROM {uri}" + (f" WITH ({properties})" if properties else ""))


def test_every_type_of_sqlite(db: Database, lite: sqlite3.Connection, tmp_path: Path) -> None:
    lite.execute(
        "CREATE TABLE kinds (id INTEGER PRIMARY KEY, amount DECIMAL(15,2), r REAL, t TEXT, b BLOB, "
        "ok BOOLEAN, d DATE, at TIMESTAMP, seconds DATETIME, loose)"
    )
    lite.execute(
        "INSERT INTO kinds VALUES (1, 12345.67, 0.5, 'täxt', x'00ff', 1, '2024-02-29', "
        "'2024-01-02T03:04:05.678901+02:00', 1704164645, 7)"
    )
    lite.execute("INSERT INTO kinds (id) VALUES (2)")
    make(db, "kinds", f"sql://sqlite:{tmp_path}/app.db?table=kinds")
    db.wait_until(lambda: len(db.table("kinds")) == 2, timeout=30)
    assert tuple(db.table("kinds").get(1)) == (
        1, Decimal("12345.67"), 0.5, "täxt", b"\x00\xff", True, date(2024, 2, 29),
        datetime(2024, 1, 2, 1, 4, 5, 678901, tzinfo=UTC), datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), 7,
    )  # fmt: skip
    assert tuple(db.table("kinds").get(2)) == (2, *[None] * 9)


def test_what_sqlite_lets_in_is_a_dead_letter(db: Database, lite: sqlite3.Connection, tmp_path: Path) -> None:
    lite.execute("CREATE TABLE odd (id INTEGER PRIMARY KEY, n INT, amount DECIMAL(5,2), t TEXT)")
    lite.execute("INSERT INTO odd VALUES (1, 1, 1.5, 'fine'), (2, 'many', 1, 'x'), (3, 1, 123456.78, 'x')")
    lite.execute("INSERT INTO odd VALUES (4, 1, 1, x'ff')")
    make(db, "odd", f"sql://sqlite:{tmp_path}/app.db?table=odd", OFTEN)
    db.wait_until(lambda: len(db.sql("SELECT * FROM dead_letters WHERE job = 'odd'").rows()) == 3, timeout=30)
    assert ours(db, "SELECT id FROM odd") == Counter([(1,)])
    reasons = [row.reason for row in db.sql("SELECT reason FROM dead_letters WHERE job = 'odd'").rows()]
    for words in ("many", "123456.78", "\\xff"):
        assert any(words in reason for reason in reasons), reasons


def test_sqlite_is_polled(db: Database, lite: sqlite3.Connection, tmp_path: Path) -> None:
    lite.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, at TIMESTAMP, note TEXT)")
    lite.execute(
        "INSERT INTO orders VALUES (1, '2024-01-01 00:00:00', 'a'), (2, '2024-01-01 00:00:01.5', 'b')"
    )
    base = f"sql://sqlite:{tmp_path}/app.db"
    make(db, "orders", f"{base}?table=orders", OFTEN)
    make(db, "grown", f"{base}?table=orders", f'{OFTEN}, "incremental.column" = "at"')
    ask = "SELECT id, note FROM orders WHERE note <> '?' AND id >= ?"
    make(db, "asked", f'{base}?query="{ask}"', f'{OFTEN}, "key" = "id", "query.params" = "[2]"')
    own = "SELECT * FROM orders WHERE id > ? ORDER BY id LIMIT 1"
    make(db, "own", f"{base}?table=orders", f'{OFTEN}, "incremental.column" = "id", "poll.query" = "{own}"')

    def same(table: str, query: str) -> bool:
        return ours(db, f"SELECT id, note FROM {table}") == Counter(lite.execute(query).fetchall())

    db.wait_until(lambda: same("orders", "SELECT id, note FROM orders"), timeout=30)
    db.wait_until(lambda: same("asked", "SELECT id, note FROM orders WHERE id >= 2"), timeout=30)
    lite.execute("INSERT INTO orders VALUES (3, '2024-01-01T00:00:02Z', 'c'), (4, '2024-01-02', 'd')")
    lite.execute("UPDATE orders SET note = 'B' WHERE id = 2")
    lite.execute("DELETE FROM orders WHERE id = 1")
    db.wait_until(lambda: same("orders", "SELECT id, note FROM orders"), timeout=30)
    db.wait_until(lambda: same("asked", "SELECT id, note FROM orders WHERE id >= 2"), timeout=30)
    db.wait_until(lambda: len(db.table("grown")) == 4 and len(db.table("own")) == 4, timeout=30)


def test_duckdb(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "app.duckdb"
    with duckdb.connect(path) as made:
        made.execute(
            "CREATE TABLE kinds (id INT PRIMARY KEY, amount DECIMAL(15,2), big HUGEINT, most UBIGINT, "
            "since TIMESTAMPTZ, ns TIMESTAMP_NS, i INTERVAL, e ENUM('x', 'y'), l DECIMAL(9,3)[], "
            "s STRUCT(a INT, b VARCHAR), m MAP(VARCHAR, INT), u UUID, tm TIME)"
        )
        made.execute(
            "INSERT INTO kinds VALUES (1, 12345.67, 170141183460469231731687303715884105, "
            "18446744073709551615, '2024-01-01 02:00:00+02', '2024-01-01 00:00:00.123456789', '1 day', 'y', "
            "[1.5, NULL], {'a': 1, 'b': 'x'}, map {'k': 1}, '61f0c404-5cb3-11e7-907b-a6006ad3dba0', '12:00')"
        )
    base = f"sql://duckdb:{path}"
    make(db, "kinds", f"{base}?table=kinds")
    db.wait_until(lambda: len(db.table("kinds")) == 1, timeout=30)
    row = db.table("kinds").get(1)
    assert tuple(row)[:8] == (
        1, Decimal("12345.67"), Decimal(170141183460469231731687303715884105), Decimal(2**64 - 1),
        datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC), "1 day", "y",
    )  # fmt: skip
    assert list(row.l) == [Decimal("1.500"), None]
    assert (row.u, row.tm) == ("61f0c404-5cb3-11e7-907b-a6006ad3dba0", "12:00:00")
    make(db, "some", f'{base}?query="SELECT id, amount FROM kinds WHERE id = ?"', '"query.params" = "[1]"')
    db.wait_until(lambda: ours(db, "SELECT * FROM some") == Counter([(1, Decimal("12345.67"))]), timeout=30)
    with refusal("source.auth", "passwd"):
        make(db, "secret", f"{base}?query=\"SELECT * FROM read_text('/etc/passwd')\"")


def test_a_polled_file_can_be_written_to(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "app.duckdb"
    with duckdb.connect(path) as made:
        made.execute("CREATE TABLE orders (id INT PRIMARY KEY, note TEXT)")
    make(db, "orders", f"sql://duckdb:{path}?table=orders", OFTEN)

    def written(id_: int) -> bool:
        try:
            with duckdb.connect(path) as writer:
                writer.execute("INSERT INTO orders VALUES (?, 'x')", [id_])
        except duckdb.Error:
            return False  # it is being read
        return True

    for id_ in range(3):
        db.wait_until(lambda id_=id_: written(id_), timeout=30)  # type: ignore[misc]
        db.wait_until(lambda id_=id_: len(db.table("orders")) == id_ + 1, timeout=30)  # type: ignore[misc]


@pytest.mark.parametrize("more", ["", ', "incremental.column" = "id"'])
def test_columns_that_are_altered(lite: sqlite3.Connection, spark: object, tmp_path: Path, more: str) -> None:
    def same(db: Database) -> bool:
        return ours(db, "SELECT * FROM orders") == Counter(lite.execute("SELECT * FROM orders").fetchall())

    lite.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT)")
    lite.execute("INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    with velostream.connect(tmp_path / "data") as db:
        make(db, "orders", f"sql://sqlite:{tmp_path}/app.db?table=orders", OFTEN + more)
        db.wait_until(lambda: same(db), timeout=30)
        lite.execute("ALTER TABLE orders ADD more INT DEFAULT 7")
        db.wait_until(lambda: same(db), timeout=30)
    lite.execute("ALTER TABLE orders ADD again TEXT")
    lite.execute("INSERT INTO orders VALUES (3, 'c', 8, 'd')")
    with velostream.connect(tmp_path / "data") as db:
        db.wait_until(lambda: same(db), timeout=30)
    lite.execute("ALTER TABLE orders DROP again")
    with velostream.connect(tmp_path / "data") as db:
        db.wait_until(lambda: db.job("orders").state == "failed", timeout=30)
        assert '"again"' in (db.job("orders").reason or "")
        assert len(db.table("orders")) == 3


def test_what_a_driver_makes_nothing_of_is_refused(db: Database, tmp_path: Path) -> None:
    for base, name, value in (
        (f"sql://sqlite:{tmp_path}/app.db", "ssl.mode", "verify-full"),
        (f"sql://sqlite:{tmp_path}/app.db", "query.timeout", "1s"),
        (f"sql://duckdb:{tmp_path}/app.db", "connect.timeout", "1s"),
        ("sql://jdbc:postgresql://h/db", "ssl.root.cert", "/ca.pem"),
        ("sql://postgresql://u@h/db", "pool.size", "9"),
        ("sql://mysql://u@h/db", "parallel.readers", "9"),
        ("clickhouse://h/db", "transaction.isolation", "serializable"),
        ("clickhouse://h/db", "pool.validation.query", "SELECT 1"),
    ):
        with refusal("sql.property", name):
            make(db, "o", f"{base}?table=orders", f'"{name}" = "{value}"')


def test_sqlalchemy_over_postgresql(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("INSERT INTO orders SELECT n, n % 3, n / 4.0, '100% :x' FROM generate_series(1, 30) n")
    shop.sql.execute(
        "CREATE TABLE events (id bigserial PRIMARY KEY, at timestamptz DEFAULT now(), tags text[])"
    )
    shop.sql.execute("INSERT INTO events (tags) SELECT ARRAY['a', NULL] FROM generate_series(1, 10)")
    base = f"sql://postgresql+psycopg://postgres:secret@127.0.0.1:{shop.postgres.port}/{shop.name}"
    make(db, "orders", f"{base}?table=orders", OFTEN)
    make(db, "events", f"{base}?table=events", f'{OFTEN}, "incremental.column" = "at"')
    ask = "SELECT id, amount, note FROM orders WHERE customer = ? AND note LIKE '100% :x' AND amount > ?"
    make(db, "some", f'{base}?query="{ask}"', f'{OFTEN}, "key" = "id", "query.params" = "[1, 2.5]"')
    some = "SELECT id, amount, note FROM orders WHERE customer = 1 AND amount > 2.5"
    same()
    same(some, "SELECT * FROM some")
    shop.sql.execute("DELETE FROM orders WHERE id < 15")
    shop.sql.execute("UPDATE orders SET amount = amount + 1 WHERE id > 20")
    shop.sql.execute("INSERT INTO events (tags) VALUES (ARRAY['b'])")
    same()
    same(some, "SELECT * FROM some")
    same("SELECT id, at FROM events")
    assert db.table("orders").get(20) is not None


def test_short_names_and_named_connections(shop: Shop, spark: object, tmp_path: Path) -> None:
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 12345.67, 'x')")
    user = f"u_{shop.name}"
    shop.sql.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{CANARY}'")
    shop.sql.execute(f"GRANT SELECT ON orders TO {user}")
    config = tmp_path / "velostream.toml"
    (tmp_path / "word").write_text(CANARY)
    config.write_text(
        f'[connections.shop]\nhost = "127.0.0.1"\nport = {shop.postgres.port}\ndatabase = "{shop.name}"\n'
        f'username = "{user}"\npassword = "${{file:{tmp_path / "word"}}}"\n'
    )
    told: list[str] = []
    with velostream.connect(tmp_path / "data", config=config) as db:
        db.sql(
            'CREATE TABLE orders AS SELECT * FROM sql://driver:shop?query="SELECT * FROM orders" '
            'WITH ("driver" = "postgresql", "poll.interval" = "50ms", "key" = "id")'
        )
        db.wait_until(lambda: db.table("orders").get(1).amount == Decimal("12345.67"), timeout=30)
        told += [str(db.sql(s).rows()) for s in ("SHOW JOBS", "SHOW CREATE orders", "DESCRIBE orders")]
        bad = f"postgresql+psycopg://{user}:{CANARY}x@127.0.0.1:{shop.postgres.port}/{shop.name}?table=orders"
        for uri in (
            "sql://postgresql:shop?table=nowhere",
            f"sql://{bad}",
            "sql://postgresql:shop?table=customers",
        ):
            with pytest.raises(velostream.VelostreamError) as raised:
                db.sql(f"CREATE TABLE other AS SELECT * FROM {uri}")
            told += [str(raised.value), str(raised.value.hint)]
        shown = db.sql("SHOW JOBS").rows()
        told += [str(shown)]
    assert not [text for text in told if CANARY in text]
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]


def test_jdbc_over_postgresql(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("INSERT INTO orders SELECT n, n % 3, n / 4.0, 'it''s' FROM generate_series(1, 30) n")
    place = f"postgresql://127.0.0.1:{shop.postgres.port}/{shop.name}"
    user = '"username" = "postgres", "password" = "secret"'
    make(db, "orders", f"sql://jdbc:{place}?table=orders", f'{OFTEN}, "key" = "id", {user}')
    ask = "SELECT id, amount FROM orders WHERE customer = ? AND note = ?"
    make(
        db, "some", f'sql://jdbc:{place}?query="{ask}"',
        f'{user}, {OFTEN}, "key" = "id", "query.params" = "[1, \\"it\'s\\"]"',
    )  # fmt: skip
    same()
    same("SELECT id, amount FROM orders WHERE customer = 1", "SELECT * FROM some")
    shop.sql.execute("DELETE FROM orders WHERE id < 15")
    shop.sql.execute("INSERT INTO orders VALUES (100, 1, 12345.67, 'late')")
    same()
    with refusal("source.auth"):
        make(db, "o", f"sql://jdbc:{place}?table=orders", '"username" = "postgres", "password" = "wrong"')
    with refusal("source.missing", "nowhere"):
        make(db, "o", f"sql://jdbc:{place}?table=nowhere", user)
    with refusal("source.config", "sybase"):
        make(db, "o", "sql://jdbc:sybase://127.0.0.1/x?table=t")


class Numbers(Driver):
    """A driver of one's own."""

    name = "numbers"

    def connect(self, address: Address) -> Connection:
        return Counting(int(address.text))


class Counting(Connection):
    def __init__(self, count: int) -> None:
        self._count = count

    def columns(self, query: str, values: Sequence[Any]) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([("n", pa.int64())])

    def rows(self, query: str, values: Sequence[Any], schema: pa.Schema, size: int) -> Iterator[Decoded]:
        yield decoded(schema, [(number,) for number in range(self._count)])

    def close(self) -> None:
        return


def test_a_driver_of_ones_own(db: Database) -> None:
    velostream.register_driver(Numbers)
    try:
        make(db, "counted", "sql://numbers:5?table=any")
        db.wait_until(lambda: ours(db, "SELECT sum(n) FROM counted") == Counter([(10,)]), timeout=30)
    finally:
        forget_driver("numbers")
    with refusal("config", why="not a driver"):
        velostream.register_driver(Counting)


def test_mistakes_are_named(db: Database, lite: sqlite3.Connection, tmp_path: Path) -> None:
    lite.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    base = f"sql://sqlite:{tmp_path}/app.db"
    with refusal("source.config", "sqlit") as unknown:
        make(db, "o", "sql://sqlit:/x.db?table=orders")
    assert "sqlite" in unknown.value.hint
    assert "duckdb" in unknown.value.hint
    with refusal("source.config", "oracledb") as package:
        make(db, "o", "sql://oracle+oracledb://u@h/db?table=orders")
    assert "pip install" in package.value.hint
    with refusal("source.missing", "ordrs") as missing:
        make(db, "o", f"{base}?table=ordrs")
    assert "orders" in missing.value.hint
    with refusal("source.missing", "none.db"):
        make(db, "o", f"sql://sqlite:{tmp_path}/none.db?table=orders")
    with refusal("source.config", "2 ? marks"):
        make(db, "o", f'{base}?query="SELECT ? + ? AS x"', '"query.params" = "[1]"')
    with refusal("source.config", "incremental.column", "nothing"):
        make(db, "o", f"{base}?table=orders", f'{OFTEN}, "incremental.column" = "nothing"')
    with refusal("source.config"):
        make(db, "o", f'{base}?query="DELETE FROM orders"')
    with refusal("source.auth"):
        make(db, "o", f"{base}?query=\"ATTACH '{tmp_path}/other.db' AS other\"")
    with refusal("source.network"):
        make(db, "o", "sql://postgresql+psycopg://u:p@127.0.0.1:1/db?table=orders")
    with refusal("sql.property", why="polls"):
        make(db, "o", f"{base}?table=orders", '"cdc" = "true"')
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    with refusal("sql.unsupported", why="only reads"):
        db.sql(f"INSERT INTO {base}?table=orders SELECT * FROM t EMIT CHANGES")


def test_files_and_hosts_that_may_not_be_reached(
    lite: sqlite3.Connection, spark: object, tmp_path: Path
) -> None:
    lite.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    (tmp_path / "in").mkdir()
    config = tmp_path / "velostream.toml"
    config.write_text(f'[allowed]\nroots = ["{tmp_path / "in"}"]\nhosts = ["db.internal"]\n')
    with velostream.connect(tmp_path / "data", config=config) as db:
        for driver in ("sqlite", "duckdb"):
            with refusal("sql.unsafe", "app.db"):
                make(db, "o", f"sql://{driver}:{tmp_path}/app.db?table=orders")
        with refusal("sql.unsafe", "elsewhere"):
            make(db, "o", "sql://postgresql+psycopg://u@elsewhere/db?table=orders")
        with refusal("sql.unsafe", "elsewhere"):
            make(db, "o", "sql://jdbc:postgresql://elsewhere/db?table=orders")
