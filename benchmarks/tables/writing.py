"""What is measured on our table alone: commits beside snapshots, merging and readers."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from benchmarks.tables import workload
from benchmarks.tables.stopwatch import Stopwatch, timed

if TYPE_CHECKING:
    import pyarrow as pa

    from benchmarks.tables.contenders import Ours

UPSERT = 10_000
READERS = 4
_NOTICED = 0.001
"""Seconds; shorter waits are not kept."""
_COMMITS = 40
"""Enough that segments merge and a snapshot comes due among them, at a million rows."""


def upserts_in_a_row(watch: Stopwatch, held: Ours, rows: int) -> None:
    """The longest of many commits, and commits while a snapshot is written; CPU is the writer's own."""
    walls: list[float] = []
    cpus: list[float] = []
    for number in range(_COMMITS):
        given = workload.changed(rows, UPSERT, 2000 + number)
        with timed(walls, cpus, time.thread_time):
            held.upsert(given)
    watch.note("upsert of 10,000, longest of 40", UPSERT, [max(walls)], [max(cpus)])
    walls, cpus = [], []
    given = [workload.changed(rows, UPSERT, 3000 + number) for number in range(20)]
    snapshot = threading.Thread(target=held.table.checkpoint)
    snapshot.start()
    for number, changed in enumerate(given):
        if number and not snapshot.is_alive():
            break
        with timed(walls, cpus, time.thread_time):
            held.upsert(changed)
    snapshot.join()
    watch.note("upsert of 10,000 beside a snapshot", UPSERT, walls, cpus)


def writer_and_readers(watch: Stopwatch, held: Ours, rows: int) -> None:
    """The writer alone, then beside four readers; and how long a reader ever waited for a row."""
    size = min(100_000, rows)
    given = [workload.changed(rows, size, 5000 + number) for number in range(10)]
    alone = _written(held, given[:5])
    readers = _Readers(held, rows)
    began = time.perf_counter()
    beside = _written(held, given[5:])
    ended = time.perf_counter()
    watch.note("longest wait of a reader", 1, *readers.stopped(began, ended))
    # The same without a writer: what threads wait for each other, and for the machine.
    readers = _Readers(held, rows)
    began = time.perf_counter()
    readers.wait(sum(beside[0]))
    watch.note("longest wait without a writer", 1, *readers.stopped(began, time.perf_counter()))
    watch.note("writer alone", size, *alone)
    watch.note("writer beside 4 readers", size, *beside)


def _written(held: Ours, given: list[pa.Table]) -> tuple[list[float], list[float]]:
    """Wall seconds, and CPU seconds of all threads: what a commit would take if nobody else used the machine,
    since one thread runs at a time."""
    walls: list[float] = []
    cpus: list[float] = []
    for changed in given:
        with timed(walls, cpus):
            held.upsert(changed)
    return walls, cpus


class _Readers:
    """Threads that ask for one key after the other."""

    def __init__(self, held: Ours, rows: int) -> None:
        self._stop = threading.Event()
        self._waits: list[tuple[float, float, float]] = []
        """Begin, end, and what the process did meanwhile in CPU seconds."""
        keys = workload.random_keys(rows, 10_000, seed=6)
        self._threads = [threading.Thread(target=self._read, args=(held.table, keys)) for _ in range(READERS)]
        for thread in self._threads:
            thread.start()

    def _read(self, table: Any, keys: list[str]) -> None:
        wall, cpu = time.perf_counter, time.process_time
        while not self._stop.is_set():
            for key in keys:
                started, spent = wall(), cpu()
                table.get(key)
                ended = wall()
                if ended - started > _NOTICED:
                    self._waits.append((started, ended, cpu() - spent))

    def wait(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def stopped(self, began: float, ended: float) -> tuple[list[float], list[float]]:
        """The longest wait of any reader for a row that went on at some time between the two moments.

        What readers wait for each other before the first batch and after the last does not count.
        """
        self._stop.set()
        for thread in self._threads:
            thread.join()
        within = [wait for wait in self._waits if wait[1] > began and wait[0] < ended]
        return [max(end - start for start, end, _ in within)], [max(cpu for *_, cpu in within)]
