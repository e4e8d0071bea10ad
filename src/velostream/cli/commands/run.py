"""`velo run`: a file of statements, started, watched, and stopped cleanly."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

import click

from velostream.cli.diagnostics import INTERRUPTED, Terminated, report, say, whisper
from velostream.cli.durations import duration
from velostream.cli.invocation import Invocation, common
from velostream.cli.output import Output
from velostream.cli.script import read_script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from velostream.cli.commands.board import Board
    from velostream.model.statements import SelectStatement, Statement
    from velostream.runtime.database import Database
    from velostream.runtime.jobs.job import Job
    from velostream.runtime.statements.application import Step


@click.command("run")
@click.argument("file")
@click.option("--once", is_flag=True, help="Process what is there, then exit.")
@click.option(
    "--for", "for_", callback=duration, metavar="TIME", help="Stop after running for this long, such as 60s."
)
@common
def run_command(invocation: Invocation, file: str, once: bool, for_: timedelta | None) -> int:
    """Run the statements of FILE and keep them running until Ctrl-C.

    All of it is checked before anything starts. Run again on the same data directory, everything resumes
    where it was. A SELECT in the file prints its rows to stdout. --for counts from when all statements
    have started.
    """
    text, name = read_script(file)
    with stopped_by_signals():
        return Run(invocation, once, for_).run(text, name)


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """SIGTERM stops like Ctrl-C."""

    def terminate(*_: object) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Run:
    """One run of one file."""

    def __init__(self, invocation: Invocation, once: bool, lasts: timedelta | None) -> None:
        self._invocation = invocation
        self._once = once
        self._lasts = lasts
        self._output = Output(invocation.output_format)
        self._stop = threading.Event()
        self._followers: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def run(self, text: str, name: str) -> int:
        """Start, watch, stop; the exit code."""
        from velostream.cli.commands.board import Board
        from velostream.runtime.database import Database, runnable

        board = Board()
        settings = self._invocation.settings()
        database = Database(
            settings, once=self._once, resume=False, tell=board.tell, on_job=board.job_changed
        )
        with closing(database, board):
            threading.Thread(target=_warm, args=(database,), name="spark", daemon=True).start()
            checked = database.checked(text, name)
            if checked.errors:
                report(checked.errors, as_json=self._invocation.format == "json")
                return 1
            if settings.metrics_port is not None:
                from velostream.runtime.metrics import serve

                whisper(f"metrics: {serve(database, settings.metrics_port)}")
            with board.watching(database):
                return self._live(database, board, runnable(checked))

    def _live(self, database: Database, board: Board, statements: tuple[Statement, ...]) -> int:
        from velostream.runtime.statements.application import Application

        application = Application(database, statements)
        application.start(lambda step: self._narrate(step, board), board.begin)
        for told in application.left_out():
            board.warn(told)
        for statement in application.followed:
            self._follow(database, statement)
        board.started()
        began = time.monotonic()
        self._wait(database)
        if self._lasts is not None:
            board.ran(time.monotonic() - began)
        return self._verdict(database)

    def _narrate(self, step: Step, board: Board) -> None:
        if step.result.message:
            board.done(step.statement, step.result.message)
        elif step.result.table.num_columns:
            board.done(step.statement, None)
            self._output.write(step.result.table)
        for warning in step.result.warnings:
            board.warn(warning)

    # --- while it runs ------------------------------------------------------------------------------

    def _follow(self, database: Database, statement: SelectStatement) -> None:
        from velostream.cli.prompt.live import rows_of
        from velostream.runtime.statements.events import Changes, Following, followed

        def follow() -> None:
            following: Following | None = None
            try:
                for event in followed(database, statement, self._stop):
                    if isinstance(event, Following):
                        following = event
                    elif isinstance(event, Changes) and following is not None:
                        self._output.write_more(rows_of(event, following))
            except BaseException as exc:
                self._failures.append(exc)

        thread = threading.Thread(target=follow, name="select", daemon=True)
        thread.start()
        self._followers.append(thread)

    def _wait(self, database: Database) -> None:
        """Wait until the time is up, or nothing runs any more."""
        deadline = None if self._lasts is None else time.monotonic() + self._lasts.total_seconds()
        while True:
            left = 0.2 if deadline is None else min(0.2, deadline - time.monotonic())
            if left <= 0 or not self._alive(database):
                break
            time.sleep(left)
        self._stop.set()
        for thread in self._followers:
            thread.join(10)

    def _alive(self, database: Database) -> bool:
        jobs = any(job.state.alive or job.state == "paused" for job in database.jobs_by_name)
        return jobs or any(thread.is_alive() for thread in self._followers)

    def _verdict(self, database: Database) -> int:
        failed: list[Job] = [job for job in database.jobs_by_name if job.state == "failed"]
        for job in failed:
            if job.error is not None:
                job.error.detail = job.error.detail or f'job "{job.name}" failed'
                self._failures.append(job.error)
        if not self._failures:
            return 0
        from velostream.cli.diagnostics import exit_code_of

        return max(exit_code_of(failure, debug=self._invocation.debug) for failure in self._failures)


@contextlib.contextmanager
def closing(database: Database, board: Board | None = None) -> Iterator[None]:
    """Close the database at the end, with one message; a second Ctrl-C does not wait for it."""
    try:
        yield
    except KeyboardInterrupt:
        say("\nstopping…" if sys.stderr.isatty() else "stopping…")
        raise
    finally:
        if board is not None:
            board.closing()
        try:
            database.close()
        except KeyboardInterrupt:
            os._exit(INTERRUPTED)


def _warm(database: Database) -> None:
    """Start Spark in parallel to the checks; failures are reported to whoever needs it first."""
    from velostream.errors import VelostreamError

    with contextlib.suppress(VelostreamError):
        database.spark()


def headline(statement: Statement) -> str:
    """A short title of a statement."""
    name = getattr(statement, "name", None) or getattr(statement, "table", None)
    if name:
        return str(name)
    words = " ".join(statement.text.split())
    return words[:40] + "…" if len(words) > 40 else words
