"""kill -9 while writing exactly once: readers of committed records see each result once, in order per key."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import kafka_clients as clients
import pytest
import sink_runner as runner

from refusals import refusal
from velostream.connectors.kafka.client.cluster import Cluster
from velostream.connectors.kafka.client.ranges import Part
from velostream.connectors.kafka.options import KafkaOptions

if TYPE_CHECKING:
    import random

    from kafka_clients import Consume, Received, Topics

    from velostream.devtools.broker.process import BrokerProcess

pytestmark = pytest.mark.sampled(3)

TOTAL = 6_000


class Life:
    """One process that writes until it is done or dead."""

    def __init__(
        self, address: str, topic: str, folder: Path, seed: int, kill: str = "", total: int = TOTAL
    ) -> None:
        script = str(Path(runner.__file__))
        arguments = [address, topic, str(folder), str(total), str(seed), kill]
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", script, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = ""

    def wait_for(self, line: str) -> bool:
        """Until it said something that begins so; False when it ended without."""
        while said := self.line():
            if said.startswith(line):
                return True
        return False

    def line(self) -> str:
        """What it says next; empty when it ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.said += line
        return line

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    def ended(self) -> int:
        rest, errors = self.process.communicate(timeout=120)
        self.said += rest
        assert self.process.returncode in (0, 1, -signal.SIGKILL), errors
        return self.process.returncode


def check(records: list[Received], total: int = TOTAL) -> None:
    numbers = [record.json["n"] for record in records]
    assert len(numbers) == len(set(numbers)), "doubled"
    assert sorted(numbers) == list(range(1, total + 1))
    by_key: dict[bytes | None, list[Received]] = defaultdict(list)
    for record in records:
        by_key[record.key].append(record)
    for key, found in by_key.items():
        assert key == found[0].json["k"].encode()
        assert len({record.partition for record in found}) == 1
        assert [record.json["n"] for record in found] == sorted(record.json["n"] for record in found)


@pytest.mark.slow
def test_each_result_is_there_once(
    broker: BrokerProcess, topic: Topics, consume: Consume, tmp_path: Path, rng: random.Random, rounds
) -> None:
    """Seeded kills: each place once or more, and random moments."""
    name = topic(3)
    places = sorted(runner.PLACES)
    rng.shuffle(places)
    for number in range(rounds(len(places) + 4, 60)):
        kill = ""
        if number < len(places) or rng.random() < 0.5:
            place = places[number % len(places)]
            kill = f"{place} {1 if 'settl' in place else rng.randint(1, 4)}"
        seed = rng.randrange(2**32)
        life = Life(broker.address, name, tmp_path / "sink", seed, kill, total=10**9)
        if not kill and life.wait_for("begun"):
            # A moment that the seed chooses: while it opens, or within any step.
            with contextlib.suppress(subprocess.TimeoutExpired):
                life.process.wait(rng.uniform(0.1, 1.5))
            life.kill()
        assert life.ended() == -signal.SIGKILL, kill
    output = runner.opened(broker.address, name, tmp_path / "sink")
    runner.step(output, 100)
    total = runner.position(output)
    output.close()
    check(consume(name), total)


def test_an_intent_is_settled_by_asking(
    broker: BrokerProcess, topic: Topics, consume: Consume, tmp_path: Path
) -> None:
    """Committed, and nobody here was told: the positions are adopted, nothing is written again."""
    name = topic(2)
    life = Life(broker.address, name, tmp_path / "sink", 1, "after the commit 1")
    assert life.ended() == -signal.SIGKILL
    written = len(consume(name))
    assert written > 0
    output = runner.opened(broker.address, name, tmp_path / "sink")
    assert runner.position(output) == written
    runner.step(output, 3)
    output.close()
    check(consume(name), written + 3)


def test_an_intent_that_was_not_carried_out_is_dropped(
    broker: BrokerProcess, topic: Topics, consume: Consume, tmp_path: Path
) -> None:
    name = topic(2)
    life = Life(broker.address, name, tmp_path / "sink", 1, "inside the transaction 1")
    assert life.ended() == -signal.SIGKILL
    assert consume(name, "read_uncommitted")
    output = runner.opened(broker.address, name, tmp_path / "sink")
    assert (runner.position(output), consume(name)) == (0, [])
    runner.step(output, 5)
    output.close()
    check(consume(name), 5)


def test_an_older_process_is_fenced(
    broker: BrokerProcess, topic: Topics, consume: Consume, tmp_path: Path
) -> None:
    """Two copies of a data directory: the one that opens last writes, the other fails and is never seen."""
    name = topic(2)
    first = runner.opened(broker.address, name, tmp_path / "one")
    runner.step(first, 10)
    for copy in ("two", "three"):
        shutil.copytree(tmp_path / "one", tmp_path / copy)
    second = runner.opened(broker.address, name, tmp_path / "two")
    with refusal("sink.fenced"):
        runner.step(first, 7)
    runner.step(second, 5)
    first.close()
    # The first was about to write a second step, and a second step is there, but not that one.
    with refusal("sink.changed", 2, 1):
        runner.opened(broker.address, name, tmp_path / "one")
    third = runner.opened(broker.address, name, tmp_path / "three")
    with refusal("sink.changed", 2, 1):
        runner.step(third, 3)
    third.close()
    second.close()
    second = runner.opened(broker.address, name, tmp_path / "two")
    runner.step(second, 5)
    with refusal("sink.changed", 3, 1):
        runner.opened(broker.address, name, tmp_path / "one")
    runner.step(second, 5)
    second.close()
    check(consume(name), 25)


def test_brokers_that_undid_what_they_confirmed_are_told_of(
    broker: BrokerProcess, topic: Topics, tmp_path: Path
) -> None:
    name = topic(2)
    life = Life(broker.address, name, tmp_path / "sink", 1, "after the intent 3")
    assert life.ended() == -signal.SIGKILL
    identity = json.loads((tmp_path / "sink" / "identity.json").read_text())["id"]
    cluster = Cluster(
        KafkaOptions.model_validate({"bootstrap.servers": broker.address, "topic": name}),
    )
    cluster.commit(f"velostream-1-runner-{identity}", {Part(name, 0): 1})
    cluster.close()
    with refusal("sink.changed", 1, 2, why="confirmed"):
        runner.opened(broker.address, name, tmp_path / "sink")


def test_a_process_that_slept_too_long_is_fenced(
    broker: BrokerProcess, topic: Topics, consume: Consume, tmp_path: Path
) -> None:
    name = topic(2)
    zombie = Life(broker.address, name, tmp_path / "one", 1)
    assert zombie.wait_for("begun")
    zombie.line()
    os.kill(zombie.process.pid, signal.SIGSTOP)
    try:
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        heir = runner.opened(broker.address, name, tmp_path / "two")
        runner.step(heir, 1)
        at = runner.position(heir)
    finally:
        os.kill(zombie.process.pid, signal.SIGCONT)
    said = zombie.process.communicate(timeout=60)[0]
    assert zombie.process.returncode == 1, said
    assert "sink.fenced" in said
    runner.step(heir, TOTAL - at)
    heir.close()
    check(consume(name))


@pytest.mark.slow
def test_a_broker_that_is_killed_costs_nothing(
    own_broker: BrokerProcess, tmp_path: Path, rng: random.Random, rounds
) -> None:
    """The broker dies while records are written, comes back, and each is there once."""
    clients.make_topic(own_broker.address, "t", 3)
    total = rounds(TOTAL, 200_000)
    life = Life(own_broker.address, "t", tmp_path / "sink", rng.randrange(2**32), total=total)
    assert life.wait_for("begun")
    for _ in range(rounds(1, 12)):
        for _ in range(rng.randint(1, 3)):
            life.line()
        own_broker.kill()
        own_broker.start()
    assert life.ended() == 0, life.said
    check(clients.consume(own_broker.address, "t"), total)
