"""The figures of one contender at one size, in a process of its own; prints them as one line of JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import in_process
from benchmarks.tables import handing_over, workload, writing
from benchmarks.tables.contenders import CONTENDERS, Contender, Ours
from benchmarks.tables.stopwatch import Stopwatch, resident, timed
from benchmarks.tables.writing import UPSERT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOT = 100
SMALLEST = 100_000
"""The size whose run also measures what does not depend on the size of a table."""
PAGE = 1000
_SOME = 20
"""Texts asked between two looks at the clock, until a contender has shown that it is fast."""


class Figures:
    """Runs the workload on one contender."""

    def __init__(self, name: str, rows: int, folder: Path) -> None:
        self.name = name
        self.kind = CONTENDERS[name]
        self.rows = rows
        self.folder = folder
        self.watch = Stopwatch()
        self.changes = 0

    def run(self) -> dict[str, dict[str, float]]:
        given = workload.batches(self.rows)
        before = resident()
        held = self._loaded("load", given)
        self.watch.note_bytes("memory when loaded", self.rows, resident() - before)
        if isinstance(held, Ours):
            self.watch.note_bytes("memory of the columns", self.rows, held.table.stats().memory.columns)
        self._lookups(held)
        self.watch.note_bytes("memory, all rows ready", self.rows, resident() - before)
        self._questions(held)
        self._reading(held)
        self._upserts(held)
        if isinstance(held, Ours):
            writing.upserts_in_a_row(self.watch, held, self.rows)
            writing.writer_and_readers(self.watch, held, self.rows)
        held.close()
        del held
        if "load durable and indexed" not in self.kind.cannot:
            durable = self._durable(given)
            self.watch.note_bytes("disk", self.rows, durable.disk_bytes())
            durable.close()
            del given
            self._recovery(durable.folder)
        if self.kind is Ours and self.rows == SMALLEST:
            handing_over.handed_over(self.watch)
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
            for first in range(0, self.rows, workload.BATCH):
                last = min(first + workload.BATCH, self.rows)
                held.get_many([workload.key(number) for number in range(first, last)])
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
            with timed(walls, cpus):
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
            with timed(walls, cpus):
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
            # Else the snapshot that the changes so far made due would run beside; see `writing` for that.
            held.table.checkpoint()
        self.watch.measure("upsert of 10,000", UPSERT, lambda: held.upsert(next(upcoming)), tries=len(given))

    def _recovery(self, folder: Path) -> None:
        """In a process of its own, which knows nothing of the table."""
        found = in_process("tables.recovery", self.name, str(folder))
        for figure, (wall, cpu) in found.items():
            self.watch.note(figure, self.rows, [wall], [cpu])


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


def main() -> None:
    name, rows = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="velostream-bench-", dir=os.environ.get("TMPDIR")) as folder:
        found = Figures(name, rows, Path(folder)).run()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
