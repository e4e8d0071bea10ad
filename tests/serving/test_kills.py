"""Nothing acknowledged is lost and nothing is there twice, whenever the process is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crash_writer
import pytest

from velostream.serving.store import TableStore

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    import pyarrow as pa

WRITER = Path(__file__).with_name("crash_writer.py")


def contents(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def expected(kind: str, last: int) -> Counter[tuple[Any, ...]]:
    if kind == "keyed":
        state: dict[str, tuple[Any, ...]] = {}
        for number in range(1, last + 1):
            for row in crash_writer.batch_rows(number).to_pylist():
                state[row["symbol"]] = tuple(row.values())
        return Counter(state.values())
    rows: Counter[tuple[Any, ...]] = Counter()
    for number in range(1, last + 1):
        if number % 3 == 0:
            rows.subtract(contents(crash_writer.batch_rows(number - 1)))
        else:
            rows.update(contents(crash_writer.batch_rows(number)))
    return +rows


def run_until_killed(folder: Path, kind: str, first: int, acknowledgements: int, seed: int) -> int:
    """The last acknowledged batch; the kill comes at a random moment after some acknowledgements."""
    process = subprocess.Popen(
        [sys.executable, str(WRITER), str(folder), kind, str(first), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(WRITER.parent)},
    )
    assert process.stdout is not None
    last = first - 1
    for _ in range(acknowledgements):
        last = int(process.stdout.readline())
    process.kill()
    for line in process.stdout.read().splitlines():
        last = int(line)
    process.wait()
    process.stdout.close()
    return last


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["keyed", "rows"])
def test_kill_9_at_random_moments(
    kind: str, tmp_path: Path, rng: random.Random, rounds: Callable[[int, int], int]
) -> None:
    folder = tmp_path / "tables"
    number = 0
    for _ in range(rounds(10, 100)):
        seen = run_until_killed(folder, kind, number + 1, rng.randint(1, 40), rng.randrange(2**32))
        with TableStore(folder, read_only=True) as store:
            table = store.open(kind)
            assert table.last_commit is not None
            number = table.last_commit.batch
            # The one commit that was in flight may have become durable before it was acknowledged.
            assert number in (seen, seen + 1)
            assert contents(table.snapshot()) == expected(kind, number)
