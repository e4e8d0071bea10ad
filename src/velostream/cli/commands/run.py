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
from velostream.cli.limit import Limit
from velostream.cli.output import Output
from velostream.cli.statements_file import read_script
from velostream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from velostream.cli.board import Board
    from velostream.config import Settings
    from velostream.errors import VelostreamError
    from velostream.model.statements import SelectStatement, Statement
    from velostream.runtime.instance import Instance
    from velostream.runtime.jobs.job import Job
    from velostream.runtime.statements.application import NotStarted, Step


@click.command("run")
@click.argument("file", required=False)
@click.option("--once", is_flag=True, help="Process what is there, then exit.")
@click.option(
    "--for", "for_", callback=duration, metavar="TIME", help="Stop after running for this long, such as 60s."
)
@click.option(
    "--keep-going", is_flag=True, help="Start the other statements when one of them cannot be started."
)
@common
def run_command(
    invocation: Invocation, file: str | None, once: bool, for_: timedelta | None, keep_going: bool
) -> int:
    """Run the statements of FILE and keep them running until Ctrl-C; without FILE, what was made before.

    All of it is checked before anything starts. Run again on the same data directory, everything resumes
    where it was. A SELECT in the file prints its rows to stdout. --for counts from when everything that
    runs has started, or from when a statement begins to wait for its source; with what did not start by
    then, the exit code is not 0.
    """
    text, name = read_script(file) if file is not None else (None, "")
    with stopped_by_signals():
        return Run(invocation, once, for_, keep_going=keep_going).run(text, name)


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

    def __init__(
        self, invocation: Invocation, once: bool, lasts: timedelta | None, *, keep_going: bool = False
    ) -> None:
        self._invocation = invocation
        self._once = once
        self._keep_going = keep_going
        self._limit = Limit(lasts)
        self._output = Output(invocation.output_format)
        self._stop = threading.Event()
        self._followers: list[threading.Thread] = []
        self._unfollowed: dict[int, tuple[SelectStatement, str]] = {}
        """SELECTs that have not begun to follow their source yet, and what they wait for."""
        self._opening: list[threading.Event] = []
        """Of each SELECT, set when it follows its source, or waits for it, or has failed."""
        self._failures: list[BaseException] = []

    def run(self, text: str | None, name: str) -> int:
        """Start, watch, stop; the exit code. Without a text, the statements of the data directory run."""
        from velostream.cli.board import Board
        from velostream.runtime.instance import Instance, runnable

        board = Board()
        settings = self._invocation.settings()
        if text is None:
            _check_there_are_jobs(settings)

        def tell(reason: str) -> None:
            self._limit.begin()
            board.tell(reason)

        database = Instance(
            settings, once=self._once, resume=False, tell=tell, note=board.note, on_job=board.job_changed
        )
        self._limit.over = database.executor.stopping.set
        with closing(database, board):
            threading.Thread(target=_warm, args=(database,), name="spark", daemon=True).start()
            statements: tuple[Statement, ...] = tuple(entry.statement for entry in database.catalog)
            if text is not None:
                checked = database.checked(text, name)
                if checked.errors:
                    report(checked.errors, as_json=self._invocation.format == "json")
                    return max(error.exit_code for error in checked.errors)
                statements = runnable(checked)
            if settings.metrics_port is not None:
                from velostream.runtime.metrics import serve

                whisper(f"metrics: {serve(database, settings.metrics_port)}")
            try:
                with board.watching(database):
                    return self._live(database, board, statements)
            finally:
                self._limit.end()

    def _live(self, database: Instance, board: Board, statements: tuple[Statement, ...]) -> int:
        from velostream.runtime.statements.application import Application

        application = Application(database, statements, keep_going=self._keep_going)
        application.start(
            lambda step: self._narrate(step, board), board.begin, lambda left: self._leave_out(left, board)
        )
        if not database.executor.stopping.is_set():
            for told in application.left_out():
                board.warn(told)
            for statement in application.followed:
                self._follow(database, statement, board)
            board.started()
        self._await_start(database)
        self._limit.begin()
        self._wait(database)
        if self._limit.lasts is not None:
            board.ran(self._limit.passed)
        if application.not_started:
            say(f"{len(application.not_started)} of {len(statements)} statements did not start")
        return self._verdict(database)

    def _leave_out(self, left: NotStarted, board: Board) -> None:
        board.failed(left.statement, left.error)
        self._failures.append(self._in_time(left))

    def _in_time(self, failed: NotStarted) -> VelostreamError:
        """The error of a statement; a timeout where it was given up because the time of `--for` was over."""
        from velostream.errors import DeadlineError

        error, left = failed.error, self._limit.left
        if left is None or left > 0:
            return error
        why = "" if isinstance(error, DeadlineError) else f": {error.message}"
        return DeadlineError(
            f"{headline(failed.statement)} did not start within the time{why}",
            detail=error.detail,
            hint=error.hint,
            location=error.location,
        )

    def _narrate(self, step: Step, board: Board) -> None:
        if step.result.message:
            board.done(step.statement, step.result.message)
        elif step.result.table.num_columns:
            board.done(step.statement, None)
            self._output.write(step.result.table)
        for warning in step.result.warnings:
            board.warn(warning)

    def _await_start(self, database: Instance) -> None:
        """Wait until everything runs, or waits for its source: also what the file does not name."""
        from velostream.runtime.changing.replacing import loaded

        over = database.executor.stopping

        def started(job: Job) -> bool:
            held_up = job.state in ("waiting", "degraded") or not job.state.alive
            return held_up or loaded(job) or over.is_set()

        if self._limit.lasts is None:
            return
        for job in database.jobs_by_name:
            job.wait(started)
        for opened in self._opening:
            while not opened.wait(0.2) and not over.is_set():
                pass

    # --- while it runs ------------------------------------------------------------------------------

    def _follow(self, database: Instance, statement: SelectStatement, board: Board) -> None:
        from velostream.cli.prompt.live import rows_of
        from velostream.runtime.answers.events import Awaiting, Changes, Following, followed

        self._unfollowed[id(statement)] = statement, ""
        opened = threading.Event()
        self._opening.append(opened)

        def follow() -> None:
            following: Following | None = None
            try:
                for event in followed(database, statement, self._stop):
                    if isinstance(event, Awaiting):
                        self._unfollowed[id(statement)] = statement, f": {event.reason}"
                        board.tell(f"{headline(statement)} waits: {event.reason}")
                    elif isinstance(event, Following):
                        following = event
                        del self._unfollowed[id(statement)]
                    elif isinstance(event, Changes) and following is not None:
                        self._output.write_more(rows_of(event, following))
                    opened.set()
            except BaseException as exc:
                self._unfollowed.pop(id(statement), None)
                self._failures.append(exc)
            finally:
                opened.set()

        thread = threading.Thread(target=follow, name="select", daemon=True)
        thread.start()
        self._followers.append(thread)

    def _wait(self, database: Instance) -> None:
        """Wait until the time is up, or nothing runs any more."""
        while self._alive(database):
            left = self._limit.left
            if left is not None and left <= 0:
                break
            time.sleep(0.2 if left is None else min(0.2, left))
        self._stop.set()
        for thread in self._followers:
            thread.join(10)

    def _alive(self, database: Instance) -> bool:
        # A statement of another client may stop all jobs for a moment, before or while they are looked at.
        busy = database.executor.busy
        jobs = any(job.state.alive or job.state == "paused" for job in database.jobs_by_name)
        return busy or jobs or database.executor.busy or any(thread.is_alive() for thread in self._followers)

    def _verdict(self, database: Instance) -> int:
        from velostream.cli.diagnostics import exit_code_of

        for job in database.jobs_by_name:
            if job.state == "failed" and job.error is not None:
                job.error.detail = job.error.detail or f'job "{job.name}" failed'
                self._failures.append(job.error)
        self._failures += self._idle(database)
        debug, as_json = self._invocation.debug, self._invocation.format == "json"
        return max((exit_code_of(each, debug=debug, as_json=as_json) for each in self._failures), default=0)

    def _idle(self, database: Instance) -> Iterator[VelostreamError]:
        """An error for each job and each SELECT that never came to read its source."""
        from velostream.errors import DeadlineError

        for job in database.jobs_by_name:
            begun = job.stats.successes > 0 or job.state not in ("starting", "waiting", "degraded")
            if not begun:
                reason = job.info.reason or "its sources were still being opened"
                yield DeadlineError(f'job "{job.name}" did not start within the time: {reason}')
        for statement, why in self._unfollowed.values():
            yield DeadlineError(
                f"{headline(statement)} did not start within the time{why}", location=statement.location
            )


def _check_there_are_jobs(settings: Settings) -> None:
    from velostream.runtime.catalog.catalog import remembered

    if not any(entry.job is not None for entry in remembered(settings.data_dir)):
        raise ConfigError(
            f"nothing that was made in {settings.data_dir} is kept up to date",
            hint="name a file of statements: velo run app.sql",
        )


@contextlib.contextmanager
def closing(database: Instance, board: Board | None = None) -> Iterator[None]:
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


def _warm(database: Instance) -> None:
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
