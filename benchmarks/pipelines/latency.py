"""From produce to readable by key.

Usage: python -m benchmarks.pipelines.latency FOLLOWER BROKERS TOPIC PARTITIONS RATE WARM SECONDS

The probes of the first WARM seconds do not count. Prints p50 and p99 in milliseconds as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import HERE, peak_memory, percentile, processor_seconds
from benchmarks.pipelines.following import FOLLOWERS, Follower
from benchmarks.pipelines.workload import PROBE_EVERY, send_one

POLL_SECONDS = 0.002
FIRST_SECONDS = 120.0
LAST_SECONDS = 60.0
"""How long the first record and the last probe may take."""


def main() -> None:
    name, brokers, topic, partitions, rate, warm, seconds = sys.argv[1:8]
    length = float(warm) + float(seconds)
    expected = -(-round(float(rate) * length) // PROBE_EVERY)
    with tempfile.TemporaryDirectory() as folder:
        follower = FOLLOWERS[name](Path(folder), brokers, topic)
        send_one(brokers, topic, "first")
        wait_for_first(follower)
        before = processor_seconds()
        command = [sys.executable, "-m", "benchmarks.pipelines.probe", brokers, topic, partitions, rate]
        with subprocess.Popen(
            [*command, str(length)], stdout=subprocess.PIPE, text=True, cwd=HERE.parent
        ) as producer:
            seen = watch(follower, expected, int(partitions), time.monotonic() + length + LAST_SECONDS)
            output, _ = producer.communicate()
        told = json.loads(output)
        assert told["probes"] == expected
        used = processor_seconds() - before - told["cpu"]
        counted = seen[round(expected * float(warm) / length) :]
        print(
            json.dumps(
                {
                    "p50": percentile(counted, 0.5),
                    "p99": percentile(counted, 0.99),
                    "cpu per second": used / length,
                    "memory": peak_memory() / 1e6,
                }
            )
        )
        follower.close()


def wait_for_first(follower: Follower) -> None:
    """Until the table is up: how long that takes is another figure."""
    deadline = time.monotonic() + FIRST_SECONDS
    while follower.sent("first") is None:
        if time.monotonic() > deadline:
            raise RuntimeError("the first record did not become readable")
        time.sleep(POLL_SECONDS)


def watch(follower: Follower, expected: int, partitions: int, deadline: float) -> list[float]:
    """Milliseconds from being sent to being readable, of every probe in its order."""
    found = [0.0] * expected
    # Within a partition probes become readable in their order, so that only the next of each is looked for.
    waiting = {number: number for number in range(min(partitions, expected))}
    while waiting:
        for partition in list(waiting):
            while partition in waiting:
                number = waiting[partition]
                sent = follower.sent(f"P{number}")
                if sent is None:
                    break
                found[number] = time.time_ns() / 1e6 - sent / 1e3
                waiting[partition] = number + partitions
                if number + partitions >= expected:
                    del waiting[partition]
        if time.monotonic() > deadline:
            raise RuntimeError(f"probes {sorted(waiting.values())} did not become readable")
        time.sleep(POLL_SECONDS)
    return found


if __name__ == "__main__":
    main()
