"""The figures of one contender at one size, in a process of its own; prints them as one line of JSON."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.tables import workload
from benchmarks.tables.contenders import CONTENDERS, Contender, Ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UPSERT = 10_000
HOT = 100
PAGE = 1000
_SOME = 20
"""Texts asked between two looks at the clock, until a contender has shown that it is fast."""


class Stopwatch:
    """Wall and CPU seconds of each figure; several tries give the median."""

    def __init__(self) -> None:
        self.figures: dict[str, dict[str, float]] = {}

    def note(self, name: str, count: float, walls: list[float], cpus: list[float]) -> None:
        self.figures[name] = {"count": count, "wall": median(walls), "cpu": median(cpus)}

    def measure(
        self,
        name: str,
        count: float,
        work: Callable[[], Any],
        tries: int = 3,
        before: Callable[[], Any] | None = None,
    ) -> None:
        walls, cpus = [], []
        for _ in range(tries):
            if before is not None:
                before()
            with _timed(walls, cpus):
                work()
        self.note(name, count, walls, cpus)


@contextmanager
def _timed(walls: list[float], cpus: list[float]) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    cpus.append(time.process_time() - cpu)
    walls.append(time.perf_counter() - wall)


def _resident() -> int:
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


class Figures:
    """Runs the workload on one contender."""

    def __init__(self, kind: type[Contender], rows: int, folder: Path) -> None:
        self.kind = kind
        self.rows = rows
        self.folder = folder
        self.watch = Stopwatch()
        self.changes = 0

    def run(self) -> dict[str, dict[str, float]]:
        given = workload.batches(self.rows)
        before = _resident()
        held = self._loaded("load", given)
        self._lookups(held)
        self.watch.figures["memory"] = {"count": self.rows, "bytes": (_resident() - before) / self.rows}
        self._questions(held)
        self._reading(held)
        self._upserts(held)
        if isinstance(held, Ours):
            self._threads(held)
        held.close()
        del held
        if "load durable and indexed" not in self.kind.cannot:
            durable = self._durable(given)
            durable.close()
            if isinstance(durable, Ours):
                self._recovery(durable)
        return self.watch.figures

    def _loaded(self, name: str, given: list[Any]) -> Contender:
        held = self.kind(self._fresh())
        self.watch.measure(name, self.rows, lambda: held.load(given), tries=1)
        return held

    def _durable(self, given: list[Any]) -> Contender:
        held = self.kind(self._fresh())
        self.watch.measure("load durable and indexed", self.rows, lambda: held.load_durable(given), tries=1)
        return held

    def _fresh(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder))

    # --- by key -------------------------------------------------------------------------------------

    def _lookups(self, held: Contender) -> None:
        count = held.lookups
        get = held.getter()
        wanted = workload.random_keys(self.rows, count)
        # The first time rows are asked for may make them ready; the figure without that is given too.
        self.watch.measure("get, first time", count, lambda: _ask_each(get, wanted), tries=1)
        if isinstance(held, Ours):
            held.get_many([workload.key(number) for number in range(self.rows)])
        others = workload.random_keys(self.rows, count, seed=4)
        self.watch.measure("get random keys", count, lambda: _ask_each(get, others))
        hot = workload.random_keys(self.rows, HOT) * max(1, count // HOT)
        self.watch.measure("get hot keys", len(hot), lambda: _ask_each(get, hot))
        many = workload.random_keys(self.rows, 10_000, seed=5)
        self.watch.measure("get_many", len(many), lambda: held.get_many(many), tries=5)

    # --- questions ----------------------------------------------------------------------------------

    def _change(self, held: Contender) -> Callable[[], None]:
        def change() -> None:
            self.changes += 1
            held.upsert(workload.changed(self.rows, 100, self.changes))

        return change

    def _questions(self, held: Contender) -> None:
        watch = self.watch
        for name, texts, ask in (
            ("scalars", workload.scalar_questions(), held.scalar),
            ("column values", workload.column_questions(), held.column_values),
        ):
            self._asked(f"{name}, text never seen", ask, texts, tries=1)
            self._asked(f"{name}, after a change", ask, texts, before=self._change(held))
            self._asked(f"{name}, again", ask, texts, tries=5)
            asked, wall, cpu = self._mixed(held, ask, texts)
            watch.note(f"{name}, table changing", asked, [wall], [cpu])
        change = self._change(held)
        status = "status = 'active'"
        watch.measure("status = 'active' as Arrow", 1, lambda: held.column("id", status), 5, change)
        watch.measure("SUM with predicate", 1, lambda: held.scalar("SUM(amount)", status), 5, change)
        watch.measure("COUNT(*)", 1, lambda: held.scalar("COUNT(*)"), 5, change)
        watch.measure("COUNT with equality", 1, lambda: held.scalar("COUNT(*)", status), 5, change)
        for name, where in (("COUNT(*), again", None), ("COUNT with equality, again", status)):
            asks = [("COUNT(*)", where)] * (1000 if isinstance(held, Ours) else 5)
            watch.measure(name, len(asks), _asking(held.scalar, asks), 5)

    def _asked(
        self,
        name: str,
        ask: Callable[[str, str], Any],
        texts: list[tuple[str, str]],
        tries: int = 3,
        before: Callable[[], Any] | None = None,
    ) -> None:
        """All texts, or as many as a second allows."""
        walls, cpus, counts = [], [], []
        for _ in range(tries):
            if before is not None:
                before()
            until = time.perf_counter() + 1
            asked = 0
            with _timed(walls, cpus):
                for text in texts:
                    ask(*text)
                    asked += 1
                    if time.perf_counter() > until:
                        break
            counts.append(asked)
        self.watch.note(
            name,
            1,
            [wall / count for wall, count in zip(walls, counts, strict=True)],
            [cpu / count for cpu, count in zip(cpus, counts, strict=True)],
        )

    def _mixed(
        self,
        held: Contender,
        ask: Callable[[str, str], Any],
        texts: list[tuple[str, str]],
        seconds: float = 2.0,
    ) -> tuple[int, float, float]:
        """Ask for two seconds, the table changing every second; the changes themselves are not counted."""
        change = self._change(held)
        asked, walls, cpus = 0, [], []
        for _ in range(2):
            change()
            started = time.perf_counter()
            with _timed(walls, cpus):
                while time.perf_counter() - started < seconds / 2:
                    for text in texts[:_SOME] if asked < len(texts) else texts:
                        ask(*text)
                        asked += 1
        return asked, sum(walls), sum(cpus)

    # --- reading many -------------------------------------------------------------------------------

    def _reading(self, held: Contender) -> None:
        rows = self.rows
        change = self._change(held)
        if "stream as batches" not in held.cannot:
            self.watch.measure("stream as batches", rows, lambda: _exhaust(held.stream()), 3, change)
        self.watch.measure("stream as rows", rows, lambda: _exhaust(held.rows()), 2, change)
        self.watch.measure("page", 1, lambda: held.page(PAGE, rows // 2), 3, change)

    def _upserts(self, held: Contender) -> None:
        given = [workload.changed(self.rows, UPSERT, 1000 + number) for number in range(9)]
        upcoming = iter(given)
        if isinstance(held, Ours):
            # Else the snapshot that the changes so far made due would run beside: once in about 80 of these.
            held.table.checkpoint()
        self.watch.measure("upsert of 10,000", UPSERT, lambda: held.upsert(next(upcoming)), tries=len(given))

    # --- ours alone ---------------------------------------------------------------------------------

    def _threads(self, held: Ours) -> None:
        """The writer alone, then beside four readers; and how long a reader ever waited."""
        size = min(100_000, self.rows)
        alone = self._written(held, size, 5000)
        stop = threading.Event()
        waits: list[tuple[float, float]] = []
        keys = workload.random_keys(self.rows, 10_000, seed=6)
        readers = [threading.Thread(target=_read_on, args=(held.table, keys, stop, waits)) for _ in range(4)]
        for reader in readers:
            reader.start()
        beside = self._written(held, size, 6000)
        stop.set()
        for reader in readers:
            reader.join()
        self.watch.note(
            "longest wait of a reader", 1, [max(wall for wall, _ in waits)], [max(cpu for _, cpu in waits)]
        )
        # The same without a writer: what threads wait for each other, and for the machine.
        stop.clear()
        waits.clear()
        readers = [threading.Thread(target=_read_on, args=(held.table, keys, stop, waits)) for _ in range(4)]
        for reader in readers:
            reader.start()
        stop.wait(sum(beside))
        stop.set()
        for reader in readers:
            reader.join()
        self.watch.note(
            "longest wait without a writer",
            1,
            [max(wall for wall, _ in waits)],
            [max(cpu for _, cpu in waits)],
        )
        self.watch.note("writer alone", size, alone, alone)
        self.watch.note("writer beside 4 readers", size, beside, beside)

    def _written(self, held: Ours, size: int, first: int) -> list[float]:
        walls: list[float] = []
        for number in range(5):
            given = workload.changed(self.rows, size, first + number)
            with _timed(walls, []):
                held.upsert(given)
        return walls

    def _recovery(self, held: Ours) -> None:
        walls, cpus = [], []
        with _timed(walls, cpus):
            reopened = type(held)(held.folder)
            reopened.table = reopened.store.open("transactions")
            reopened.table.scalar("SUM(amount)", "status = 'active'")
        self.watch.note("recovery to SQL", self.rows, walls, cpus)
        with _timed(walls, cpus):
            reopened.table.get("txn_00000007")
        self.watch.note("recovery to get", self.rows, [sum(walls)], [sum(cpus)])
        self.watch.figures["disk"] = {
            "count": self.rows,
            "bytes": reopened.table.stats().disk_bytes / self.rows,
        }
        reopened.close()


def _ask_each(get: Callable[[str], Any], keys: list[str]) -> None:
    for key in keys:
        get(key)


def _asking(ask: Callable[..., Any], texts: list[Any]) -> Callable[[], None]:
    def everything() -> None:
        for text in texts:
            ask(*text)

    return everything


def _exhaust(items: Iterator[Any]) -> None:
    for _ in items:
        pass


def _read_on(table: Any, keys: list[str], stop: threading.Event, waits: list[tuple[float, float]]) -> None:
    longest, longest_cpu = 0.0, 0.0
    wall, cpu = time.perf_counter, time.process_time
    while not stop.is_set():
        for key in keys:
            started, spent = wall(), cpu()
            table.get(key)
            longest = max(longest, wall() - started)
            longest_cpu = max(longest_cpu, cpu() - spent)
    waits.append((longest, longest_cpu))


def main() -> None:
    name, rows = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="velostream-bench-", dir=os.environ.get("TMPDIR")) as folder:
        found = Figures(CONTENDERS[name], rows, Path(folder)).run()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
