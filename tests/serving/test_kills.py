"""Nothing acknowledged is lost and nothing is there twice, whenever the process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crash_writer
import pytest

from velostream.serving.durable.verification import verify
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    import pyarrow as pa

pytestmark = pytest.mark.sampled(3)

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


def start(folder: Path, kind: str, first: int, seed: int, *step: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WRITER), str(folder), kind, str(first), str(seed), *step],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(WRITER.parent), *sys.path])},
    )


def last_told(process: subprocess.Popen[str], before: int) -> int:
    """The last acknowledged batch of a process that is dead or dying."""
    assert process.stdout is not None
    told = process.stdout.read().splitlines()
    process.wait()
    process.stdout.close()
    return int(told[-1]) if told else before


def run_until_killed(folder: Path, kind: str, first: int, acknowledgements: int, seed: int) -> int:
    """The last acknowledged batch; the kill comes at a random moment after some acknowledgements."""
    process = start(folder, kind, first, seed)
    assert process.stdout is not None
    last = first - 1
    for _ in range(acknowledgements):
        last = int(process.stdout.readline())
    process.kill()
    return last_told(process, last)


def check(folder: Path, kind: str, acknowledged: int) -> int:
    """Everything acknowledged is there, once; the last batch that is."""
    report = verify(folder / kind)
    assert report.good, report
    with TableStore(folder, read_only=True) as store:
        table = store.open(kind)
        number = table.last_commit.batch if table.last_commit is not None else 0
        # The one commit that was in flight may have become durable before it was acknowledged.
        assert number in (acknowledged, acknowledged + 1)
        assert contents(table.snapshot()) == expected(kind, number)
    return number


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["keyed", "rows"])
def test_kill_9_at_random_moments(
    kind: str, tmp_path: Path, rng: random.Random, rounds: Callable[[int, int], int]
) -> None:
    folder = tmp_path / "tables"
    number = 0
    for _ in range(rounds(10, 100)):
        seen = run_until_killed(folder, kind, number + 1, rng.randint(1, 40), rng.randrange(2**32))
        number = check(folder, kind, seen)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", crash_writer.STEPS)
def test_kill_9_at_every_step_of_a_background_snapshot(
    step: str, tmp_path: Path, rng: random.Random, rounds: Callable[[int, int], int]
) -> None:
    folder = tmp_path / "tables"
    kind = rng.choice(["keyed", "rows"])
    number = 0
    for _ in range(rounds(2, 20)):
        process = start(folder, kind, number + 1, 0, step, str(rng.randint(1, 4)))
        number = check(folder, kind, last_told(process, number))
        assert process.returncode == -signal.SIGKILL
