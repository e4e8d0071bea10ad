"""The topic and the queries, the same for all contenders."""

from __future__ import annotations

import random

from confluent_kafka import Producer

COLUMNS = "trade_id STRING, user_id STRING, symbol STRING, quantity BIGINT, price DECIMAL(18,2), ts TIMESTAMP"
GROUPS = 10_000
SYMBOLS = 100

FILTER = "SELECT trade_id, user_id, price FROM {source} WHERE quantity > 990"
GROUPED = (
    "SELECT user_id, COUNT(*) AS trades, SUM(quantity) AS quantity, SUM(quantity * price) AS value "
    "FROM {source} GROUP BY user_id"
)
JOINED = (
    "SELECT s.sector, COUNT(*) AS trades, SUM(t.quantity) AS quantity "
    "FROM {source} t JOIN symbols s ON s.symbol = t.symbol GROUP BY s.sector"
)
QUERIES = {"filter": FILTER, "group": GROUPED, "join": JOINED}


def fill(brokers: str, topic: str, rows: int, partitions: int, seed: int = 7) -> None:
    """Trades of the seeds as JSON, one record after another to each partition in turn."""
    rng = random.Random(seed)
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 20, "compression.type": "lz4"})
    for number in range(rows):
        price = rng.randrange(100, 100_000)
        user = f"U{rng.randrange(GROUPS)}"
        value = (
            f'{{"trade_id":"T{number:08d}","user_id":"{user}","symbol":"SYM{rng.randrange(SYMBOLS)}",'
            f'"quantity":{rng.randrange(1, 1000)},"price":{price // 100}.{price % 100:02d},'
            f'"ts":"2026-01-01T00:{number // 60 % 60:02d}:{number % 60:02d}Z"}}'
        )
        while True:
            try:
                producer.produce(topic, value, user, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def symbols() -> list[tuple[str, str]]:
    """The table that trades are joined to."""
    return [(f"SYM{number}", f"sector {number % 7}") for number in range(SYMBOLS)]
