"""`velo` as a user runs it: a process of its own, and a real broker."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest
from commands import VELO, Velo

from velostream.devtools.broker.process import BrokerProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Process:
    """A running `velo`, with what it has printed so far."""

    def __init__(self, *arguments: str, folder: Path, data_dir: Path, **variables: str) -> None:
        environment = {
            **os.environ,
            "VELOSTREAM_DATA_DIR": str(data_dir),
            "PYTHONUNBUFFERED": "1",
            **variables,
        }
        self._process = subprocess.Popen(
            [*VELO, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._out: list[str] = []
        self._err: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self._process.stdout, self._out), (self._process.stderr, self._err))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: object, lines: list[str]) -> None:
        lines.extend(stream)  # type: ignore[arg-type]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def out(self) -> str:
        return "".join(self._out)

    @property
    def err(self) -> str:
        return "".join(self._err)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        self._process.send_signal(number)

    def end(self, timeout: float = 120.0) -> int:
        """Wait for the exit code."""
        code = self._process.wait(timeout)
        self._close()
        return code

    def kill(self) -> None:
        if self.running:
            self._process.kill()
            self._process.wait()
        self._close()

    def _close(self) -> None:
        for reader in self._readers:
            reader.join(10)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """`start("run", "app.sql")`: a `velo` process on this test's data directory.

    Further arguments are variables of its environment.
    """
    processes: list[Process] = []

    def begin(*arguments: str, **variables: str) -> Process:
        process = Process(*arguments, folder=tmp_path, data_dir=tmp_path / "data", **variables)
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("kafka") / "broker", free_port())
    process.start()
    yield process
    process.kill()


@pytest.fixture
def velo(tmp_path: Path, broker: BrokerProcess) -> Velo:
    return Velo(tmp_path, broker.address)


@pytest.fixture
def topic(velo: Velo, request: pytest.FixtureRequest) -> str:
    """A topic with a partition, named after the test."""
    name = request.node.name.removeprefix("test_").partition("[")[0]
    velo("topic", "create", name, "--partitions", "1", "--if-not-exists")
    return name
