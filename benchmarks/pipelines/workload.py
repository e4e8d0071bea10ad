"""The topics and the queries, the same for all contenders. Loads nothing but Python's own library."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = "trade_id STRING, user_id STRING, symbol STRING, quantity BIGINT, price DECIMAL(18,2), ts TIMESTAMP"
STAMPED = f"{COLUMNS}, sent BIGINT"
"""With the time at which the producer handed the record over, in microseconds."""
GROUPS = 10_000
SYMBOLS = 100
FILTERED_ABOVE = 990

FILTER = f"SELECT trade_id, user_id, price FROM {{source}} WHERE quantity > {FILTERED_ABOVE}"
GROUPED = (
    "SELECT user_id, COUNT(*) AS trades, SUM(quantity) AS quantity, SUM(quantity * price) AS turnover "
    "FROM {source} GROUP BY user_id"
)
JOINED = (
    "SELECT s.sector, COUNT(*) AS trades, SUM(t.quantity) AS quantity "
    "FROM {source} t JOIN symbols s ON s.symbol = t.symbol GROUP BY s.sector"
)
QUERIES = {"filter": FILTER, "group": GROUPED, "join": JOINED}
FOLLOWED = (
    "SELECT user_id, COUNT(*) AS trades, SUM(quantity * price) AS turnover, MAX(sent) AS sent "
    "FROM {source} GROUP BY user_id"
)
WINDOW_KEYS = 1000
CLOSING = "CLOSE"
"""The symbol of the last record of each partition, an hour after all others, which closes their windows."""
_DISORDER_MS = 2000
PROBE_EVERY = 20
"""Of the records that are sent at a steady rate, one in so many is looked for."""
COPIED = "SELECT trade_id, user_id, symbol, quantity, price, ts FROM {source}"
STAMPED_COPY = "SELECT trade_id, user_id, symbol, quantity, price, ts, sent FROM {source}"


def trades(rows: int, seed: int = 7) -> Iterator[tuple[str, int, str]]:
    """User, quantity and JSON of the trades of the seeds, the same for the same seed."""
    rng = random.Random(seed)
    for number in range(rows):
        user = f"U{rng.randrange(GROUPS)}"
        quantity = rng.randrange(1, 1000)
        yield user, quantity, trade(number, user, quantity, rng)


def trade(number: int, user: str, quantity: int, rng: random.Random, more: str = "") -> str:
    """One record; `more` are further fields, each after a comma."""
    price = rng.randrange(100, 100_000)
    return (
        f'{{"trade_id":"T{number:08d}","user_id":"{user}","symbol":"SYM{rng.randrange(SYMBOLS)}",'
        f'"quantity":{quantity},"price":{price // 100}.{price % 100:02d},'
        f'"ts":"2026-01-01T00:{number // 60 % 60:02d}:{number % 60:02d}Z"{more}}}'
    )


def fill(brokers: str, topic: str, rows: int, partitions: int) -> int:
    """Write trades, one after another to each partition in turn; how many of them FILTER lets through."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 20, "compression.type": "lz4"})
    passing = 0
    for number, (user, quantity, value) in enumerate(trades(rows)):
        passing += quantity > FILTERED_ABOVE
        produce(producer, topic, value, user, number % partitions)
    producer.flush()
    return passing


def ticks(rows: int, partitions: int, seed: int = 7) -> Iterator[tuple[str, str]]:
    """Symbol and JSON of trades whose times rise by a millisecond each, up to two seconds out of order.

    The last of each partition closes the windows of all before it.
    """
    rng = random.Random(seed)
    first = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(rows):
        symbol, at = f"SYM{rng.randrange(WINDOW_KEYS)}", first + timedelta(milliseconds=number)
        if number >= rows - partitions:
            symbol, at = CLOSING, at + timedelta(hours=1)
        else:
            at -= timedelta(milliseconds=rng.randrange(_DISORDER_MS))
        price = rng.randrange(100, 100_000)
        yield (
            symbol,
            f'{{"trade_id":"T{number:08d}","user_id":"U{rng.randrange(GROUPS)}","symbol":"{symbol}",'
            f'"quantity":{rng.randrange(1, 1000)},"price":{price // 100}.{price % 100:02d},'
            f'"ts":"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"}}',
        )


def fill_ticks(brokers: str, topic: str, rows: int, partitions: int) -> int:
    """Write trades in the order of their times; how many of them are in windows that close."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 20, "compression.type": "lz4"})
    for number, (symbol, value) in enumerate(ticks(rows, partitions)):
        produce(producer, topic, value, symbol, number % partitions)
    producer.flush()
    return rows - partitions


def send_one(brokers: str, topic: str, user: str) -> None:
    """One trade of this user, with the time in it."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": brokers})
    producer.produce(topic, trade(0, user, 1, random.Random(user), more=stamp()), user)
    producer.flush()


def stamp() -> str:
    """The field that says when a trade was sent, as `trade` takes it."""
    return f',"sent":{time.time_ns() // 1000}'


def produce(producer: Any, topic: str, value: str, key: str, partition: int) -> None:
    """Hand one record over, and wait where the client's queue is full."""
    while True:
        try:
            producer.produce(topic, value, key, partition=partition)
            return
        except BufferError:
            producer.poll(0.05)


def symbols() -> list[tuple[str, str]]:
    """The table that trades are joined to."""
    return [(f"SYM{number}", f"sector {number % 7}") for number in range(SYMBOLS)]
