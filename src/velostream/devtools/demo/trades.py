"""`velo demo --kafka`: trades written to a topic of a broker of the demo's own."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from typing import TYPE_CHECKING

from velostream.devtools.demo.story import ROWS_PER_SECOND, SYMBOLS
from velostream.errors import VelostreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from velostream.connectors.kafka.write.generated import Feed

TOPIC = "trades-topic"
PARTITIONS = 2
_STEP_SECONDS = 0.1
_USERS = 100


@contextlib.contextmanager
def traded(folder: Path, tell: Callable[[str], None]) -> Iterator[str]:
    """The URI of a topic into which trades are written while the block runs."""
    from velostream.connectors.kafka.options import KafkaOptions
    from velostream.connectors.kafka.write.generated import Feed
    from velostream.devtools.broker.process import VERSION, BrokerProcess, cluster, free_port

    broker = BrokerProcess(folder / "broker", free_port(), say=tell)
    brokers = cluster(broker.address)
    try:
        broker.start()
        tell(f"Kafka {VERSION} listens on {broker.address}")
        brokers.create(TOPIC, PARTITIONS, 1)
        feed = Feed(KafkaOptions.model_validate({"bootstrap.servers": broker.address}), TOPIC)
        with _feeding(feed):
            yield f"kafka://{broker.address}/{TOPIC}"
    finally:
        brokers.close()
        broker.stop()


@contextlib.contextmanager
def _feeding(feed: Feed) -> Iterator[None]:
    ended = threading.Event()
    failures: list[VelostreamError] = []
    chance = random.Random()

    def write(first: int) -> int:
        count = int(ROWS_PER_SECOND * _STEP_SECONDS)
        feed.write(trade(first + number, chance) for number in range(count))
        return first + count

    def go_on(number: int) -> None:
        due = time.monotonic()
        try:
            while not ended.wait(max(0.0, due - time.monotonic())):
                number = write(number)
                due += _STEP_SECONDS
        except VelostreamError as exc:
            failures.append(exc)

    # The first ones exist before any statement discovers columns.
    thread = threading.Thread(target=go_on, args=(write(1),), name="trades", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5)
    if failures:
        raise failures[0]


def trade(number: int, chance: random.Random) -> tuple[str, str]:
    """A generated trade: its user, and all of it as JSON with the price to the cent."""
    user = f"u{chance.randint(1, _USERS)}"
    values = {
        "trade_id": f"t{number}",
        "user_id": user,
        "symbol": chance.choice(SYMBOLS)[0],
        "side": chance.choice(("BUY", "SELL")),
        "quantity": chance.randint(1, 500),
        "price": 0,
        "ts": int(time.time() * 1000),
    }
    cents = chance.randint(1_000, 99_999)
    return user, json.dumps(values).replace('"price": 0', f'"price": {cents // 100}.{cents % 100:02d}')
