"""Lives of an application: processes that are started, asked, killed, and started again."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

RUNNER = Path(__file__).with_name("runner.py")


class Runner:
    """One life of the application."""

    def __init__(self, data: Path, app: Path, kill: str | None) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "VELOSTREAM_TEST_KILL"}
        if kill:
            environment["VELOSTREAM_TEST_KILL"] = kill
        self.process = subprocess.Popen(
            [sys.executable, str(RUNNER), str(data), str(app)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("")

    def ask(self, command: str, timeout: float = 150) -> str:
        """The answer to a command; empty when the process has ended."""
        return self.lines.get(timeout=timeout) if self.tell(command) else ""

    def tell(self, command: str) -> bool:
        """Send a command; False when the process has ended."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{command}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def ready(self, timeout: float = 150) -> None:
        """Wait until the application runs."""
        if self.lines.get(timeout=timeout) != "ready":
            pytest.fail(f"the application did not start: {self.process.communicate()[1]}")

    def kill(self) -> None:
        self.process.kill()
        self.ended()

    def ended(self) -> None:
        """Wait for the end; anything but a kill or a clean end is a failure."""
        _, errors = self.process.communicate()
        assert self.process.returncode in (0, -signal.SIGKILL), errors


def killed_while(command: list[str], change: Callable[[], None], pause: Callable[[], float]) -> bool:
    """Run a process that kills itself at some moment, with changes meanwhile; whether it did within 90 s."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + 90
        while process.poll() is None and time.monotonic() < deadline:
            change()
            try:
                process.wait(pause())
            except subprocess.TimeoutExpired:
                continue
        process.kill()
        _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    return time.monotonic() < deadline
