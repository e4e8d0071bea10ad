"""The same load several times in one process. Loads nothing but Python's own library."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.measure import peak_memory, seconds_since_start, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def loads(load: Callable[[int], None], count: int) -> dict[str, float]:
    """The same load so many times, what it takes cold and warm, and memory in MB.

    `start` is from the start of the process to the end of the first load.
    """
    runs: list[dict[str, float]] = []
    started = 0.0
    for number in range(count):
        runs.append({})
        with timed(runs[-1], "load"):
            load(number)
        started = started or seconds_since_start()
    return {"start": started, **summed_up(runs), "memory": peak_memory() / 1e6}


def summed_up(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """Seconds of the first load (cold), and the median of those after the second, with Java compiled (warm).

    The last one counts as warm where there are no more than two.
    """
    warm = runs[2:] or runs[-1:]
    return {
        "cold": runs[0]["load"],
        "cold cpu": runs[0]["load cpu"],
        "warm": median(run["load"] for run in warm),
        "warm cpu": median(run["load cpu"] for run in warm),
    }
