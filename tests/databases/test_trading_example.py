"""The trading example that the founding documents print: a topic, a CSV file and PostgreSQL in one join."""

from __future__ import annotations

import threading
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import velostream
from velostream.devtools.broker.process import BrokerProcess, free_port
from velostream.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shops import Shop
    from tests.conftest import WaitUntil

pytestmark = pytest.mark.spark
PRINTED = Path(__file__).parents[1] / "sql" / "seeds"


def printed(name: str) -> str:
    return (PRINTED / f"{name}.sql").read_text(encoding="utf-8").rstrip().rstrip(";")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker", free_port())
    process.start()
    yield process
    process.kill()


def test_it_runs_as_printed(
    shop: Shop,
    broker: BrokerProcess,
    spark: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: WaitUntil,
) -> None:
    monkeypatch.setenv("VELOSTREAM_KAFKA_BROKERS", broker.address)
    monkeypatch.setenv("CRM_PASSWORD", "secret")
    config = tmp_path / "velostream.toml"
    where = f'host = "127.0.0.1"\nport = {shop.postgres.port}\ndatabase = "{shop.name}"\n'
    who = 'username = "postgres"\npassword = "${env:CRM_PASSWORD}"\n'
    config.write_text(f"[connections.crm_db]\n{where}{who}\n[connections.db]\n{where}{who}")
    shop.sql.execute(
        "CREATE TABLE user_accounts (user_id text PRIMARY KEY, account_type text, risk_tolerance int, "
        "max_position_size numeric(15,2), internal_note text)"
    )
    shop.sql.execute("INSERT INTO user_accounts VALUES ('u1', 'pro', 5, 100000.50), ('u2', 'basic', 1, 10)")
    shop.sql.execute("CREATE TABLE orders_table (id int PRIMARY KEY, user_id text)")
    shop.sql.execute("INSERT INTO orders_table VALUES (1, 'u1'), (2, 'u1'), (3, 'u2')")
    reference = tmp_path / "symbol_reference.csv"
    reference.write_text("symbol,sector,market_cap,risk_rating\nAAPL,tech,3000000000000,3\nXOM,oil,500,1\n")
    found: list[dict[str, Any]] = []
    trades = "(trade_id, user_id, symbol, quantity, price) VALUES"
    with velostream.connect(tmp_path / "data", config=config) as db:
        db.sql(
            f"INSERT INTO kafka://trades-topic {trades} "
            "('t1', 'u1', 'AAPL', 10, 100.25), ('t2', 'u1', 'AAPL', 5, 101.00), "
            "('t3', 'u2', 'AAPL', 1, 9.50) "
            'WITH ("topic.create.if.missing" = "true")'
        )
        db.sql(
            f"INSERT INTO kafka://live-trades-stream {trades} ('t0', 'nobody', 'AAPL', 1, 1.00) "
            'WITH ("topic.create.if.missing" = "true")'
        )
        db.sql(printed("000_03"))
        assert db.table("user_analytics").get("u1").order_count == 2
        db.sql(printed("000_05"))
        db.sql(printed("000_06").replace("file:///data/", f"file://{tmp_path}/"))
        db.sql(printed("000_07"))
        profile = db.table("user_profiles").get("u1")
        assert profile == ("u1", "pro", 5, Decimal("100000.50"))
        with db.stream(printed("000_08")) as live:

            def read() -> None:
                with suppress(ClosedError):
                    for added, _ in live:
                        found.extend(added.to_pylist())

            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            db.wait_until(
                lambda: db.table("user_positions").get("u1", "AAPL").position_size == 15, timeout=60
            )
            db.sql(
                f"INSERT INTO kafka://live-trades-stream {trades} "
                "('l1', 'u1', 'AAPL', 2, 99.99), ('l2', 'u2', 'AAPL', 7, 1.00)"
            )
            wait_until(lambda: found, 60)
        reader.join(30)
    # The second user's tolerance is below the rating of the symbol.
    assert found == [
        {
            "trade_id": "l1",
            "user_id": "u1",
            "symbol": "AAPL",
            "quantity": 2,
            "price": Decimal("99.99"),
            "position_size": 15,
            "sector": "tech",
            "risk_rating": 3,
            "risk_tolerance": 5,
            "trade_value": Decimal("199.98"),
            "current_position_value": Decimal("1507.50"),
        }
    ]
