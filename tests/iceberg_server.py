"""A REST catalogue, of the handlers that Iceberg itself has for servers, and Iceberg's own reader."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from velostream.spark.gateway import SPARK_HOME
from velostream.spark.jars.maven import Jar, fetched
from velostream.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
CREDENTIAL = "id:secret"


def jars() -> tuple[Path, ...]:
    """Iceberg; Hadoop, Jackson, Avro and Parquet are Spark's."""
    lines = (line.split() for line in (HERE / "iceberg_jars.txt").read_text(encoding="ascii").splitlines())
    return fetched(tuple(Jar(*name.split(":"), pinned) for name, pinned in lines), "Iceberg's catalogue")


class IcebergServer:
    """A server with one warehouse."""

    def __init__(self, port: int) -> None:
        self.uri = f"http://127.0.0.1:{port}"

    def rows(self, place: str) -> list[dict[str, str | None]]:
        """The rows of a table, by its name or its file of metadata, as Iceberg's reader finds them."""
        with urllib.request.urlopen(f"{self.uri}/read?{quote(place, safe='')}", timeout=60) as answer:
            return [json.loads(line) for line in answer.read().decode().splitlines()]

    def lose_the_next_answer(self, status: int = 503) -> None:
        """The next commit is made, and answered as if it had failed."""
        request = urllib.request.Request(f"{self.uri}/next/{status}", b"", method="POST")
        with urllib.request.urlopen(request, timeout=60):
            pass


@contextmanager
def running(warehouse: str) -> Iterator[IcebergServer]:
    """A server for a warehouse, which is an address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = ":".join([*map(str, jars()), f"{SPARK_HOME}/jars/*"])
    command = [str(find_java().java), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", path]
    process = subprocess.Popen(
        [*command, str(HERE / "IcebergServer.java"), str(port), warehouse],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        while (line := process.stdout.readline().strip()) != "started":
            assert line, "the catalogue did not start"
        yield IcebergServer(port)
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()
