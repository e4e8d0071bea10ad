"""A SELECT that does not end, on the screen: rows scroll, groups stay and change."""

from __future__ import annotations

import math
import sys
import threading
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.cli.diagnostics import coloured, whisper
from velostream.cli.output import pretty_table
from velostream.model.columns import WEIGHT
from velostream.runtime.answers.events import AnswerEvent, Changes, Following

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from threading import Event

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from velostream.cli.output import Output

Row = tuple[Any, ...]
_Key = tuple[Any, ...]

PATIENCE_SECONDS = 0.4
"""A spinner before this would only flicker."""


def show(following: Following, events: Iterator[AnswerEvent], output: Output, stop: Event) -> None:
    """Show results until it ends, `stop` is set, or Ctrl-C (which is left to the caller)."""
    if output.pretty and following.retracts:
        _draw(View(following, expanded=output.expanded), events)
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
    """The table that the changes add up to, as it is drawn: no higher than the screen, with how to end it."""

    def __init__(self, following: Following, *, expanded: bool = False) -> None:
        self._following = following
        self._expanded = expanded
        self._rows: dict[_Key, tuple[Row, int]] = {}
        """Each row with how often there is one like it. Replaced whole: it is drawn in another thread."""
        self._fresh: set[_Key] = set()
        self.changes = 0
        self._started = time.monotonic()

    def apply(self, event: Changes) -> None:
        """Apply one batch of changes."""
        rows = dict(self._rows)
        added = _by_key(event.added)
        for changed, sign in ((_by_key(event.removed), -1), (added, 1)):
            for key, row in changed:
                rows[key] = (row, rows.get(key, (row, 0))[1] + sign)
        self._rows = {key: (row, count) for key, (row, count) in rows.items() if count > 0}
        self._fresh = {key for key, _ in added}
        self.changes += len(added)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment, Segments
        from rich.text import Text

        ordered = self._sorted()
        shown, lines = 0, list[list[Segment]]()
        foot = Text(self._foot(len(ordered), len(ordered)), "bright_black")
        # The cursor stands in a line of its own below.
        height = max(0, console.height - 1 - len(console.render_lines(foot, options)))
        some = min(len(ordered), height)
        while True:
            shown, lines = some, console.render_lines(self._drawn(ordered[:some], options.max_width), options)
            if len(lines) <= height or some <= 1:
                break
            some = max(1, min(some - 1, some * height // len(lines)))
        for line in lines[:height]:
            yield Segments([*line, Segment.line()])
        yield Text(self._foot(len(ordered), len(ordered) - shown), "bright_black")

    def _drawn(self, ordered: Sequence[tuple[_Key, Row]], width: int) -> RenderableType:
        from rich.table import Table

        schema = self._following.schema
        columns = [
            pa.array([row[place] for _, row in ordered], field.type) for place, field in enumerate(schema)
        ]
        rows = pa.Table.from_arrays(columns, schema=schema)
        drawn = pretty_table(rows, width, expanded=self._expanded)
        if isinstance(drawn, Table) and len(self._fresh) < len(ordered):
            for number, (key, _) in enumerate(ordered):
                if key in self._fresh:
                    drawn.rows[number].style = "bold green"
        return drawn

    def _foot(self, count: int, hidden: int) -> str:
        more = f"; {hidden:,} more" if hidden else ""
        elapsed = max(time.monotonic() - self._started, 0.001)
        return f"{count:,} rows{more}; {self.changes:,} changes in {elapsed:.0f} s; Ctrl-C ends"

    def _sorted(self) -> list[tuple[_Key, Row]]:
        """The rows in the order of the query, and by key where that leaves it open."""
        names = self._following.schema.names
        rows = [(key, row) for key, (row, count) in self._rows.items() for _ in range(count)]
        tie = [(name, False) for name in self._following.key or names]
        # Sorting is stable: the last criterion first. NULL is smallest, as in Spark.
        for name, descends in reversed([*self._following.order, *tie]):
            place = names.index(name)
            rows.sort(key=lambda each, at=place: _sortable(each[1][at]), reverse=descends)  # type: ignore[misc]
        return rows


def _sortable(value: Any) -> tuple[bool, bool, Any]:
    """NULL before numbers, NaN after them, as in Spark."""
    number = isinstance(value, int | float | Decimal) and value == value
    return value is not None, not number, value if number or value is None else str(value)


def _by_key(rows: pa.Table | None) -> list[tuple[_Key, Row]]:
    """Each row, below a key that equal rows share."""
    if rows is None:
        return []
    columns = [column.to_pylist() for column in rows.columns]
    return [(_hashable(row), row) for row in zip(*columns, strict=True)]


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _hashable(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    # NaN is the same as NaN here, though not to Python.
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _draw(view: View, events: Iterator[AnswerEvent]) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(view, console=Console(file=sys.stdout), refresh_per_second=8, transient=False):
        for event in events:
            if isinstance(event, Changes):
                view.apply(event)
