"""Running things in processes of their own and telling how long they took."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

HERE = Path(__file__).resolve().parent
_TICKS = os.sysconf("SC_CLK_TCK")


def in_process(
    module: str,
    *arguments: str,
    python: str | Path = sys.executable,
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> dict[str, Any]:
    """Run a module of this package by itself; the figures that it prints as its last line of JSON.

    `environment` is added to ours. RuntimeError when it fails, or takes longer than `timeout` seconds.
    """
    # A group of its own, so that a timeout ends the Java that it started, too.
    with subprocess.Popen(
        [str(python), "-m", f"benchmarks.{module}", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=HERE.parent,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as exc:
            raise RuntimeError(f"{module} took longer than {timeout:g} s") from exc
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{module} failed:\n{errors[-2000:]}")
    figures: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return figures


def medians(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The median of every figure."""
    return {name: median(float(run[name]) for run in runs) for name in runs[0]}


def median_interval(values: Sequence[float], sure: float = 0.95) -> dict[str, float]:
    """The median, and between which of the values the true one is, at least so surely.

    By order alone, however the values are spread: of ten, from the second smallest to the second largest. Of
    fewer than six no two values are sure enough, and the outermost are given.
    """
    ordered, count = sorted(values), len(values)
    cut, outside = 0, 2 / 2**count
    while outside + 2 * math.comb(count, cut + 1) / 2**count <= 1 - sure:
        cut += 1
        outside += 2 * math.comb(count, cut) / 2**count
    return {"median": median(ordered), "low": ordered[cut], "high": ordered[-1 - cut]}


@contextmanager
def timed(figures: dict[str, float], name: str) -> Iterator[None]:
    """Put down the seconds that the block takes, and those of all processors, Java included."""
    wall, cpu = time.perf_counter(), processor_seconds()
    yield
    figures[name] = time.perf_counter() - wall
    figures[f"{name} cpu"] = processor_seconds() - cpu


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


def processor_seconds() -> float:
    """Of this process and of everything that it started, also of what has ended since."""
    # Two for the process itself, two for the children that it has waited for.
    return sum(sum(map(int, fields[11:15])) for fields in family(os.getpid()).values()) / _TICKS


def peak_memory() -> int:
    """Bytes: the most that this process and each that it started and that still runs ever had."""
    total = 0
    for process in family(os.getpid()):
        try:
            lines = (Path("/proc") / str(process) / "status").read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    return total


def seconds_since_start() -> float:
    """Since this process was started, the loading of Python included."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    up = float(Path("/proc/uptime").read_text(encoding="utf-8").split()[0])
    return up - int(fields[19]) / _TICKS


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def family(process: int) -> dict[int, list[str]]:
    """A process and all below it: what the kernel says of each, from the state on."""
    seen: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                seen[int(entry.name)] = (
                    (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                )
            except OSError:
                continue
    ours, found = {process}, 0
    while len(ours) != found:
        found = len(ours)
        ours |= {child for child, fields in seen.items() if int(fields[1]) in ours}
    return {member: seen[member] for member in ours if member in seen}
