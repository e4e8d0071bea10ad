"""A process that holds a data directory, for tests of a second client."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOLDER = """
import sys, velostream
from datetime import UTC, date, datetime
from decimal import Decimal

with velostream.connect(sys.argv[1]) as db:
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            exec(line)
        except Exception as exc:
            print(type(exc).__name__, exc, flush=True)
        else:
            print("done", flush=True)
"""


class Holder:
    """A process with the directory open; it runs what it is told, line by line."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._said() == "ready"

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(self, line: str) -> None:
        """Run one line of Python there."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        assert self._said() == "done", line

    def end(self) -> None:
        """Let it close the directory, and wait for that."""
        self._process.communicate(timeout=30)

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.communicate(timeout=30)


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Callable[[], Holder]]:
    """Start a process that holds the directory `data`."""
    holders: list[Holder] = []

    def start() -> Holder:
        holders.append(Holder(tmp_path / "data"))
        return holders[-1]

    yield start
    for each in holders:
        each.end()


@pytest.fixture
def holder(hold: Callable[[], Holder]) -> Holder:
    """One such process, with a table that has a key and one that has none."""
    found = hold()
    found.run(
        "db.create_table('trades', [dict(id=n, symbol='AB'[n % 2], price=Decimal(n) / 4, "
        "at=datetime(2026, 1, 1, n, tzinfo=UTC), tags=[str(n)]) for n in range(10)], key='id')"
    )
    found.run("db.create_table('bids', [dict(symbol='A', day=date(2026, 1, 1), n=1)], key='symbol,day')")
    found.run("db.create_table('bag', [dict(n=1), dict(n=1), dict(n=None)])")
    return found
