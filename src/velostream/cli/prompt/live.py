"""A SELECT that does not end, on the screen: rows scroll, groups stay and change."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.cli.diagnostics import coloured, whisper
from velostream.cli.output import pretty_table
from velostream.model.columns import WEIGHT
from velostream.runtime.statements.events import AnswerEvent, Changes, Following

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Event

    from rich.console import RenderableType

    from velostream.cli.output import Output

PATIENCE_SECONDS = 0.4
"""A spinner before this would only flicker."""


def show(following: Following, events: Iterator[AnswerEvent], output: Output, stop: Event) -> None:
    """Show results until it ends, `stop` is set, or Ctrl-C (which is left to the caller)."""
    if output.pretty and following.retracts:
        _draw(View(following), events)
        return
    whisper("rows appear as they come; Ctrl-C ends")
    for event in events:
        if isinstance(event, Changes):
            output.write_more(rows_of(event, following))
        if stop.is_set():
            break


def rows_of(event: Changes, following: Following) -> pa.Table:
    """The rows of a batch of changes; with their weight, 1 or -1, where rows can be retracted."""
    return _weighed(event) if following.retracts else event.added


def patiently(events: Iterator[AnswerEvent]) -> Iterator[AnswerEvent]:
    """The same events; on a terminal, with a spinner and the time until the first arrives."""
    if not coloured():
        yield from events
        return
    from rich.console import Console

    started = time.monotonic()
    with Console(stderr=True).status("") as status:
        status.stop()
        done = threading.Event()

        def turn() -> None:
            if done.wait(PATIENCE_SECONDS):
                return
            status.start()
            while not done.wait(0.1):
                status.update(f"[bright_black]{time.monotonic() - started:.1f} s[/]")

        thread = threading.Thread(target=turn, daemon=True)
        thread.start()
        try:
            first = next(events, None)
        finally:
            done.set()
            thread.join()
            status.stop()
    if first is not None:
        yield first
        yield from events


def _weighed(event: Changes) -> pa.Table:
    """Added rows with weight 1 and retracted rows with -1, for programs that maintain the table."""
    parts = [event.added.append_column(WEIGHT, pa.array([1] * event.added.num_rows, pa.int64()))]
    if event.removed is not None and event.removed.num_rows:
        gone = pa.array([-1] * event.removed.num_rows, pa.int64())
        parts.insert(0, event.removed.append_column(WEIGHT, gone))
    return pa.concat_tables(parts)


class View:
    """The table that the changes add up to, as it is drawn."""

    def __init__(self, following: Following) -> None:
        self._following = following
        self._rows: Counter[tuple[Any, ...]] = Counter()
        self._fresh: set[tuple[Any, ...]] = set()
        self.changes = 0
        self._started = time.monotonic()

    def apply(self, event: Changes) -> None:
        """Apply one batch of changes."""
        if event.removed is not None:
            self._rows.subtract(_tuples(event.removed))
        added = _tuples(event.added)
        self._rows.update(added)
        self._rows = Counter({row: count for row, count in self._rows.items() if count > 0})
        self._fresh = set(added)
        self.changes += len(added)

    def __rich__(self) -> RenderableType:
        from rich.console import Console, Group
        from rich.table import Table
        from rich.text import Text

        console = Console()
        height = max(5, console.height - 7)
        ordered = self._sorted()
        table = pa.Table.from_pylist(
            [dict(zip(self._following.schema.names, row, strict=True)) for row in ordered[:height]],
            schema=self._following.schema,
        )
        drawn = pretty_table(table, console.width)
        if isinstance(drawn, Table) and len(self._fresh) < len(ordered):
            for number, row in enumerate(ordered[:height]):
                if row in self._fresh:
                    drawn.rows[number].style = "bold green"
        more = f"; {len(ordered) - height:,} more" if len(ordered) > height else ""
        elapsed = max(time.monotonic() - self._started, 0.001)
        foot = f"{len(ordered):,} rows{more}; {self.changes:,} changes in {elapsed:.0f} s; Ctrl-C ends"
        return Group(drawn, Text(foot, "bright_black"))

    def _sorted(self) -> list[tuple[Any, ...]]:
        """The rows in the order of the query, and by key where that leaves it open."""
        names = self._following.schema.names
        rows = list(self._rows.elements())
        tie = [(name, False) for name in self._following.key or names]
        # Sorting is stable: the last criterion first. NULL is smallest, as in Spark.
        for name, descends in reversed([*self._following.order, *tie]):
            place = names.index(name)
            rows.sort(key=lambda row, at=place: _sortable(row[at]), reverse=descends)  # type: ignore[misc]
        return rows


def _sortable(value: Any) -> tuple[bool, bool, Any]:
    number = isinstance(value, int | float | Decimal)
    return value is not None, not number, value if number or value is None else str(value)


def _tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in rows.columns]
    return [tuple(_hashable(value) for value in row) for row in zip(*columns, strict=True)]


def _hashable(value: Any) -> Any:
    return str(value) if isinstance(value, dict | list) else value


def _draw(view: View, events: Iterator[AnswerEvent]) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(view, console=Console(file=sys.stdout), refresh_per_second=8, transient=False):
        for event in events:
            if isinstance(event, Changes):
                view.apply(event)
