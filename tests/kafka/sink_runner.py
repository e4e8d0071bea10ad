"""Steps into a Kafka sink in a process that can be killed: its arguments are
`address topic folder rows seed kill`.

Each step takes a random number of the rows 1, 2, 3, …, so that no step is ever repeated alike. `kill` is
"place number", or empty; the process ends with SIGKILL when that place is reached for the given time.
A line is printed when the first step begins, and one for each that is done.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from velostream.connectors.base import Delivery, SinkContext
from velostream.connectors.kafka.options import KafkaOptions
from velostream.connectors.kafka.write.producer import Producer, Transactions
from velostream.connectors.kafka.write.sink import KafkaSink
from velostream.disk.journal import Journal
from velostream.engine.outputs.outputs import SinkJournal, SinkOutput
from velostream.errors import VelostreamError
from velostream.model.changes import Commit

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
KEYS = 5

PLACES: dict[str, tuple[Any, str, bool]] = {
    "before the intent": (SinkJournal, "intend", False),
    "after the intent": (SinkJournal, "intend", True),
    "inside the transaction": (Producer, "flush", True),
    "before the commit": (Transactions, "commit", False),
    "after the commit": (Transactions, "send_as", True),
    "before the record": (SinkJournal, "append", False),
    "after the record": (SinkJournal, "append", True),
    "while settling": (Transactions, "settle", False),
    "settled, not asked": (Transactions, "settle", True),
}


def die(place: str, number: int) -> None:
    """Arrange for the end."""
    owner, name, after = PLACES[place]
    original = getattr(owner, name)
    left = [number]

    def instead(*arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] <= 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **named)
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, instead)


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"k": [f"k{n % KEYS}" for n in numbers], "n": list(numbers)}, schema=SCHEMA)


def opened(address: str, topic: str, folder: Path, **options: str) -> SinkOutput:
    given = {"bootstrap.servers": address, "topic": topic, **options}
    context = SinkContext(folder, SCHEMA, ("k",), delivery=Delivery.EXACTLY_ONCE, job="1-runner")
    folder.mkdir(parents=True, exist_ok=True)
    sink = KafkaSink(
        KafkaOptions.model_validate({k.replace("__", "."): v for k, v in given.items()}), context
    )
    return SinkOutput(sink, Journal(folder / "journal"))


def position(output: SinkOutput) -> int:
    return int(output.offsets["s"]["n"]) if output.offsets else 0


def step(output: SinkOutput, count: int) -> None:
    have = position(output)
    offsets = {"s": {"n": have + count}}
    output.rows(rows(have + 1, count), None, Commit("runner", 0, offsets, datetime.now(UTC)))


def main() -> None:
    address, topic, folder, total, seed, kill = sys.argv[1:]
    rng = random.Random(seed)
    if kill:
        place, _, number = kill.rpartition(" ")
        die(place, int(number))
    output: SinkOutput | None = None
    print("begun", flush=True)
    while output is None or position(output) < int(total):
        try:
            output = output or opened(address, topic, Path(folder))
            if position(output) < int(total):
                step(output, min(rng.randint(1, 400), int(total) - position(output)))
                print(position(output), flush=True)
        except VelostreamError as exc:
            # As a job does: what may be tried again is, from the beginning.
            print(f"{exc.code} {exc.message}", flush=True)
            if not exc.retryable:
                raise SystemExit(1) from exc
            if output is not None:
                output.close()
            output = None
    output.close()
    print("done", flush=True)


if __name__ == "__main__":
    main()
