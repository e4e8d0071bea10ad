"""The progress of `velo run` on stderr: a live board on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING

from velostream.cli.diagnostics import caution, coloured, say, whisper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.spinner import Spinner

    from velostream.errors import VelostreamError
    from velostream.model.jobs import JobInfo
    from velostream.model.statements import Statement
    from velostream.runtime.instance import Instance
    from velostream.runtime.jobs.job import Job

PLAIN_SECONDS = 5.0
"""Seconds between plain lines about a long load."""
SUMMARY_SECONDS = 30.0
"""Seconds between plain lines about each job with new rows."""

_COLOURS = {
    "running": "green",
    "finished": "green",
    "starting": "yellow",
    "waiting": "yellow",
    "paused": "yellow",
    "degraded": "red",
    "failed": "red",
    "stopped": "bright_black",
}


class Board:
    """Receives the events of a run and draws them."""

    def __init__(self) -> None:
        self._database: Instance | None = None
        self._current: str | None = None
        self._began = time.monotonic()
        self._waiting: str | None = None
        self._up = False
        self._live: Live | None = None
        self._turning: Spinner | None = None
        self._states: dict[str, tuple[str, str | None]] = {}
        self._told: dict[str, int] = {}
        self._ended = threading.Event()

    # --- told ---------------------------------------------------------------------------------------

    def begin(self, statement: Statement) -> None:
        """A statement starts."""
        from velostream.cli.commands.run import headline

        self._current, self._began, self._waiting = headline(statement), time.monotonic(), None

    def done(self, statement: Statement, message: str | None) -> None:
        """A statement is done."""
        took = time.monotonic() - self._began
        rows = self._outcome(statement)
        self._current = None
        if message is None:
            return
        parts = [rows, f"{took:.1f} s" if took >= 0.1 else ""]
        extra = ", ".join(part for part in parts if part)
        self._print(message, extra)

    def failed(self, statement: Statement, error: VelostreamError) -> None:
        """A statement was not started, and the others go on."""
        from velostream.cli.commands.run import headline

        self._current = None
        self.warn(f"{headline(statement)} was not started: {error.message}")

    def warn(self, warning: str) -> None:
        """Show a warning about a statement that is done."""
        if self._live is None:
            caution(warning)
            return
        from rich.text import Text

        self._live.console.print(Text.assemble(("! ", "bold yellow"), warning))

    def note(self, line: str) -> None:
        """Show what is done, such as the plan of a replacement."""
        if self._live is None:
            whisper(line)
            return
        from rich.text import Text

        self._live.console.print(Text(line, "bright_black"))

    def tell(self, reason: str) -> None:
        """Report what takes long, and why."""
        if reason != self._waiting:
            self._waiting = reason
            if self._live is None:
                whisper(reason)

    def job_changed(self, job: Job) -> None:
        """A job changed its state; on a terminal the board shows it by itself."""
        state = (str(job.state), job.info.reason)
        before = self._states.get(job.name)
        self._states[job.name] = state
        if self._live is not None or not self._up or before == state or self._ended.is_set():
            return
        say(f"job {job.name}: {state[0]}" + (f", {state[1]}" if state[1] else ""))

    def started(self) -> None:
        """Every statement is done."""
        self._up = True
        count = sum(info.state.alive for info in self._infos())
        if count and self._live is None:
            say(f"running, {count} job{'s' if count != 1 else ''}; Ctrl-C stops")

    def ran(self, seconds: float) -> None:
        """The time of `--for` is over, or nothing ran any more: what each job has done."""
        infos = self._infos()
        say(f"ran for {seconds:.0f} s, {len(infos)} job{'' if len(infos) == 1 else 's'}")
        for info in infos:
            figures = info.stats
            bad = f", {figures.bad_rows:,} bad" if figures.bad_rows else ""
            say(f"  {info.name}: {info.state}, {figures.records_in:,} in, {figures.records_out:,} out{bad}")

    def closing(self) -> None:
        """The run is stopping: jobs that stop now are no news."""
        self._ended.set()

    # --- drawn --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def watching(self, database: Instance) -> Iterator[None]:
        """Draw while the block runs."""
        self._database = database
        if not coloured():
            threading.Thread(target=self._plain, name="board", daemon=True).start()
            try:
                yield
            finally:
                self._ended.set()
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(file=sys.stderr)
        self._live = Live(
            get_renderable=self._draw,
            console=console,
            refresh_per_second=5,
            redirect_stdout=sys.stdout.isatty(),
            transient=False,
        )
        try:
            with self._live:
                yield
        finally:
            self._live = None
            self._ended.set()

    def _print(self, message: str, extra: str) -> None:
        if self._live is None:
            say(f"{message} ({extra})" if extra else message)
            return
        from rich.text import Text

        console: Console = self._live.console
        console.print(
            Text.assemble(("✓ ", "green"), message, (f"  {extra}" if extra else "", "bright_black"))
        )

    def _draw(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = []
        if self._current is not None:
            parts.append(self._spinner())
        infos = self._infos()
        if self._up and infos:
            parts.append(jobs_table(infos))
            if any(info.state.alive for info in infos):
                parts.append(Text("Ctrl-C stops; everything is kept", "bright_black"))
        return Group(*parts)

    def _spinner(self) -> RenderableType:
        from rich.spinner import Spinner
        from rich.text import Text

        text = Text.assemble((f"{self._current} ", "bold"), (self._progress(), "bright_black"))
        if self._turning is None:
            # One for all frames: a new one per frame would never turn.
            self._turning = Spinner("dots")
        self._turning.update(text=text)
        return self._turning

    def _progress(self) -> str:
        """Rows, rate and time of the current load."""
        elapsed = time.monotonic() - self._began
        rows = self._read(self._current)
        parts = [self._waiting or "loading"]
        if rows:
            parts.append(f"{rows:,} rows read, {rows / max(elapsed, 0.001):,.0f}/s")
        done, tasks = self._database.tasks() if self._database is not None else (0, 0)
        if tasks > 1:
            parts.append(f"{done} of {tasks} tasks")
        return ", ".join([*parts, f"{elapsed:.1f} s"])

    def _plain(self) -> None:
        """Lines for a log: long loads while starting, then jobs with new rows."""
        while not self._ended.wait(SUMMARY_SECONDS if self._up else PLAIN_SECONDS):
            current = self._current
            if current is not None and time.monotonic() - self._began >= PLAIN_SECONDS:
                say(f"{current}: {self._progress()}")
            elif self._up:
                self._summary()

    def _summary(self) -> None:
        for info in self._infos():
            figures = info.stats
            if self._told.get(info.name) != figures.records_in:
                self._told[info.name] = figures.records_in
                say(
                    f"job {info.name}: {info.state}, {figures.records_in:,} in, {figures.records_out:,} out, "
                    f"{figures.rate_in:,.0f}/s, {figures.latency_ms:.0f} ms"
                )

    def _infos(self) -> list[JobInfo]:
        return self._database.jobs() if self._database is not None else []

    def _outcome(self, statement: Statement) -> str:
        """The outcome of a statement: the rows of its table, or those that its job has read."""
        from velostream.model.statements import CreateTable

        if self._database is not None and isinstance(statement, CreateTable):
            if statement.name not in self._database.store.names():
                return ""
            return _counted(self._database.table(statement.name).stats().record_count)
        return _counted(self._read(self._current), " read")

    def _read(self, name: str | None) -> int:
        return next((info.stats.records_in for info in self._infos() if info.name == name), 0)


def _counted(rows: int, how: str = "") -> str:
    return f"{rows:,} row{'' if rows == 1 else 's'}{how}" if rows else ""


def jobs_table(infos: list[JobInfo]) -> RenderableType:
    """The jobs as a compact table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, border_style="bright_black", header_style="bold", pad_edge=False)
    table.add_column("job")
    table.add_column("state")
    for name in ("rows in", "rows out", "rows/s", "latency", "bad"):
        table.add_column(name, justify="right")
    table.add_column("", overflow="ellipsis", no_wrap=True)
    for info in infos:
        figures = info.stats
        state = str(info.state)
        table.add_row(
            Text(info.name),
            Text(state, _COLOURS.get(state, "")),
            f"{figures.records_in:,}",
            f"{figures.records_out:,}",
            f"{figures.rate_in:,.0f}",
            f"{figures.latency_ms:.0f} ms",
            Text(str(figures.bad_rows), "red") if figures.bad_rows else "0",
            Text(info.reason or "", "bright_black"),
        )
    return table
