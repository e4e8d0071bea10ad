"""Running things in processes of their own and telling how long they took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HERE = Path(__file__).resolve().parent
_TICKS = os.sysconf("SC_CLK_TCK")


def in_process(module: str, *arguments: str) -> dict[str, Any]:
    """Run a module of this package by itself; the figures that it prints as its last line of JSON."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        capture_output=True,
        text=True,
        cwd=HERE.parent,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{module} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def medians(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The median of every figure."""
    return {name: median(float(run[name]) for run in runs) for name in runs[0]}


@contextmanager
def timed(figures: dict[str, float], name: str) -> Iterator[None]:
    """Put down the seconds that the block takes, and those of all processors, Java included."""
    wall, cpu = time.perf_counter(), _processor_seconds()
    yield
    figures[name] = time.perf_counter() - wall
    figures[f"{name} cpu"] = _processor_seconds() - cpu


def loads(load: Callable[[int], None]) -> dict[str, float]:
    """Seconds of the first load of a process (cold), and the median of three with Java compiled (warm)."""
    runs: list[dict[str, float]] = []
    for number in range(5):
        runs.append({})
        with timed(runs[-1], "load"):
            load(number)
    warm = {name: median(run[name] for run in runs[2:]) for name in runs[0]}
    named = {name: name.removeprefix("load") for name in warm}
    return {f"cold{named[name]}": value for name, value in runs[0].items()} | {
        f"warm{named[name]}": value for name, value in warm.items()
    }


def _processor_seconds() -> float:
    """Of this process and of everything that it started and that still runs."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = int(fields[11]) + int(fields[12])
    ours, found = {os.getpid()}, 0
    while len(ours) != found:
        found = len(ours)
        ours |= {process for process, parent in parents.items() if parent in ours}
    return sum(ticks[process] for process in ours) / _TICKS
