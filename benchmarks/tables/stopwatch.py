"""Wall and CPU seconds of single figures, and the memory of the process."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Stopwatch:
    """Wall and CPU seconds of each figure; several tries give the median."""

    def __init__(self) -> None:
        self.figures: dict[str, dict[str, float]] = {}

    def note(self, name: str, count: float, walls: list[float], cpus: list[float]) -> None:
        self.figures[name] = {"count": count, "wall": median(walls), "cpu": median(cpus)}

    def note_bytes(self, name: str, rows: int, taken: float) -> None:
        """Bytes in all, given per row."""
        self.figures[name] = {"count": rows, "bytes": taken / rows}

    def measure(
        self,
        name: str,
        count: float,
        work: Callable[[], Any],
        tries: int = 3,
        before: Callable[[], Any] | None = None,
    ) -> None:
        walls: list[float] = []
        cpus: list[float] = []
        for _ in range(tries):
            if before is not None:
                before()
            with timed(walls, cpus):
                work()
        self.note(name, count, walls, cpus)


@contextmanager
def timed(
    walls: list[float], cpus: list[float], clock: Callable[[], float] = time.process_time
) -> Iterator[None]:
    """Add the wall and CPU seconds of the block; `time.thread_time` counts this thread alone."""
    wall, cpu = time.perf_counter(), clock()
    yield
    cpus.append(clock() - cpu)
    walls.append(time.perf_counter() - wall)


def resident() -> int:
    """Bytes of memory that the process has."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0
