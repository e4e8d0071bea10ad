"""A real queue that speaks SQS's protocol (ElasticMQ), for the tests of event notifications."""

from __future__ import annotations

import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from velostream.connectors.s3.queue import Keys, Queue
from velostream.spark.jars.maven import Jar, fetched
from velostream.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


def jars() -> tuple[Path, ...]:
    lines = (line.split() for line in (HERE / "queue_jars.txt").read_text(encoding="ascii").splitlines())
    return fetched(tuple(Jar(*name.split(":"), pinned) for name, pinned in lines), "ElasticMQ")


class QueueServer:
    """A server with one queue."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/000000000000/events"
        keys = Keys("any", "any", None)
        Queue(f"http://127.0.0.1:{port}/", keys, "us-east-1").ask("CreateQueue", {"QueueName": "events"}, 20)
        self._queue = Queue(self.url, keys, "us-east-1")

    def send(self, body: str) -> None:
        self._queue.ask("SendMessage", {"MessageBody": body}, 20)

    def waiting(self) -> int:
        """How many messages nobody has taken."""
        asked = {"AttributeNames": ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]}
        found = self._queue.ask("GetQueueAttributes", asked, 20)["Attributes"]
        return sum(int(number) for number in found.values())


@contextmanager
def running() -> Iterator[QueueServer]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(find_java().java), "-Xmx128m", "-cp", ":".join(map(str, jars()))]
    process = subprocess.Popen(
        [*command, str(HERE / "QueueServer.java"), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        while (line := process.stdout.readline().strip()) != "started":
            assert line, "the queue did not start"
        yield QueueServer(port)
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()
