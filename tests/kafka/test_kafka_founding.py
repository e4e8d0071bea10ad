"""The statements over topics that the founding documents print, run word for word."""

from __future__ import annotations

import time
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kafka_clients as clients
import pytest
from confluent_kafka.admin import AdminClient
from kafka_clients import Sent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_clients import Produce
    from tests.conftest import WaitUntil

    from velostream.devtools.broker.process import BrokerProcess
    from velostream.runtime.instance import Instance

pytestmark = pytest.mark.spark
PRINTED = Path(__file__).parents[1] / "sql" / "seeds"
TOPICS = (
    *("orders-topic", "trades-topic", "live-trades-stream", "orders", "financial-transactions"),
    *("events", "users", "stream"),
)
SOURCES = {"kafka_users": "users", "kafka_events": "events", "kafka_stream": "stream"}
TABLES = [
    {
        "001_09": ("orders", "orders", "latest"),
        "001_10": ("financial-transactions", "financial_data", "latest"),
        "001_11": ("events", "high_throughput", "earliest"),
        "001_12": ("users", "user_profiles", "earliest"),
        "001_13": ("events", "live_events", "latest"),
        "001_14": ("events", "historical_data", "earliest"),
        "001_15": ("stream", "mixed_case", "latest"),
        "002_20": ("events", "user_events", "latest"),
    },
    {
        "002_17": ("users", "user_profiles", "earliest"),
        "002_19": ("events", "historical_data", "earliest"),
    },
    {"002_18": ("users", "user_profiles", "latest")},
]
"""Statements that run beside each other: the topic that each reads, the table that it makes, from where."""


def printed(name: str) -> str:
    return (PRINTED / f"{name}.sql").read_text(encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def topics(broker: BrokerProcess) -> None:
    for name in TOPICS:
        clients.make_topic(broker.address, name, 2, None)
    # Windows close when every partition is past them.
    clients.make_topic(broker.address, "trades", 1, None)


@contextmanager
def made(database: Instance, **statements: str) -> Iterator[None]:
    """Tables and sources for a while: `name="TABLE …"`, `name="SOURCE …"`."""
    for statement in statements.values():
        database.sql(f"CREATE {statement}")
    yield
    for name, statement in reversed(statements.items()):
        database.sql(f"DROP {statement.split()[0]} {name}")


def test_a_table_of_groups(database: Instance, produce: Produce) -> None:
    produce("orders-topic", [{"user_id": user, "amount": 1.5} for user in "aab"])
    database.sql(printed("000_02"))
    assert database.wait_idle(60)
    assert database.table("user_analytics").get("a").order_count == 2
    produce("orders-topic", [{"user_id": "b", "amount": 2}])
    assert database.wait_idle(60)
    assert database.table("user_analytics").get("b").order_count == 2
    database.sql("DROP TABLE user_analytics")


def test_tables_of_topics(database: Instance, produce: Produce, wait_until: WaitUntil) -> None:
    declared = {source: f"SOURCE {source} FROM kafka://{of}" for source, of in SOURCES.items()}
    with made(database, **declared):
        for number, statements in enumerate(TABLES):
            _tables(database, produce, wait_until, f"round {number}", statements)


def _tables(
    database: Instance,
    produce: Produce,
    wait_until: WaitUntil,
    round_of: str,
    statements: dict[str, tuple[str, str, str]],
) -> None:
    topics = sorted({topic for topic, _, _ in statements.values()})
    before, after = f"{round_of} before", f"{round_of} after"
    for topic in topics:
        produce(topic, [(before, {"id": before, "v": 1.25})])
    for name in statements:
        database.sql(printed(name))
    assert database.wait_idle(60)
    for topic in topics:
        produce(topic, [(after, {"id": after, "v": 2})])
    for _, table, begins in statements.values():

        def there(table: str = table) -> dict[str, Decimal]:
            rows = database.sql(f"SELECT id, v FROM {table} WHERE id LIKE '{round_of}%'").rows()
            return {row.id: row.v for row in rows}

        old = {before: Decimal("1.25")} if begins == "earliest" else {}
        wait_until(lambda there=there, old=old: there() == old | {after: Decimal(2)}, 60)
        database.sql(f"DROP TABLE {table}")


def test_a_topic_that_is_made(database: Instance, produce: Produce, broker: BrokerProcess) -> None:
    with made(database, kafka_new_topic="SOURCE kafka_new_topic (id STRING, v INT) FROM kafka://new"):
        database.sql(printed("002_21"))
        found = AdminClient({"bootstrap.servers": broker.address}).list_topics("new").topics["new"]
        assert len(found.partitions) == 3
        produce("new", [("a", {"id": "a", "v": 1})])
        assert database.wait_idle(60)
        assert [tuple(row) for row in database.table("auto_topic").rows()] == [("a", 1)]
        database.sql("DROP TABLE auto_topic")


def first_rows(database: Instance, statement: str, then: Any) -> list[dict[str, Any]]:
    """The first rows that a SELECT shows of what comes once it runs."""
    with database.stream(statement) as live:
        then()
        return next(rows for rows in (batch[0].to_pylist() for batch in live.batches()) if rows)


def test_trading_analytics(database: Instance, produce: Produce, tmp_path: Path) -> None:
    symbols, users = tmp_path / "symbols.csv", tmp_path / "users.csv"
    symbols.write_text("symbol,sector,market_cap,risk_rating\nS1,tech,10,2\nS2,oil,20,5\n")
    users.write_text("user_id,account_type,risk_tolerance,max_position_size\nu1,x,3,100\n")
    produce(
        "trades-topic", [{"user_id": "u1", "symbol": s, "quantity": 10, "price": 1.5} for s in ("S1", "S2")]
    )
    live = [
        {"trade_id": n, "user_id": "u1", "symbol": s, "quantity": 2, "price": 2.25}
        for n, s in ((1, "S1"), (2, "S2"), (3, "S3"))
    ]
    # Columns are found in what is there; a SELECT shows what comes.
    produce("live-trades-stream", live[:1])
    with made(
        database,
        symbol_metadata=f"TABLE symbol_metadata AS SELECT * FROM file://{symbols}",
        user_profiles=f"TABLE user_profiles AS SELECT * FROM file://{users}",
    ):
        database.sql(printed("000_05"))
        assert database.wait_idle(60)
        assert database.table("user_positions").get("u1", "S1").position_value == Decimal("15.0")
        rows = first_rows(database, printed("000_08"), lambda: produce("live-trades-stream", live))
        database.sql("DROP TABLE user_positions")
    (row,) = rows
    assert (row["trade_id"], row["sector"], row["position_size"]) == (1, "tech", 10)
    assert (row["trade_value"], row["current_position_value"]) == (Decimal("4.50"), Decimal("15.0"))


def test_a_stream_joined_to_profiles(database: Instance, produce: Produce) -> None:
    order = {"order_id": 1, "user_id": "u1", "product": "p", "amount": 9.5}
    profile = {"user_id": "u1", "name": "Ann", "email": "a@b", "subscription_tier": "premium"}
    produce("orders-topic", [order])
    produce("users", [("u1", profile)])
    with made(
        database,
        user_profiles="TABLE user_profiles AS SELECT * FROM kafka://users",
        orders="SOURCE orders FROM kafka://orders-topic",
    ):
        assert database.wait_idle(60)
        (row,) = first_rows(database, printed("000_04"), lambda: produce("orders-topic", [order]))
    assert (row["user_name"], row["product"], row["discount_eligible"]) == ("Ann", "p", True)


@pytest.mark.parametrize("name", ["004_37", "004_38", "004_39"])
def test_queries_of_trades(database: Instance, produce: Produce, name: str) -> None:
    now = int(time.time()) // 300 * 300_000

    def trade(seconds: int, volume: int) -> Sent:
        value = {"symbol": "S", "price": 1.5, "volume": volume}
        return Sent(value, partition=0, timestamp=now + 1000 * seconds)

    produce("trades", [trade(-900, 1)])
    records = [trade(-600, 1500), trade(-599, 500), trade(-1, 10)]
    with made(database, trades="SOURCE trades FROM kafka://trades"):
        rows = first_rows(database, printed(name), lambda: produce("trades", records))
    assert rows[0]["symbol"] == "S"
    if name == "004_37":
        assert [row["price"] for row in rows] == [Decimal("1.5")]
    else:
        (total,) = {name for name in rows[0] if "volume" in name.lower()}
        assert rows[0][total] == 2000
