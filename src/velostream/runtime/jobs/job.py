"""A job: one continuous statement, its state, its thread, and its Structured Streaming query.

The thread opens the inputs, starts the query, and then watches: it asks the sources for their newest
positions and has the next micro-batch process up to there. An external failure makes the job `degraded` and
is retried with backoff; an internal one makes it `failed`.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from velostream.engine.inputs.widening import ColumnsWidenedError
from velostream.engine.realtime.work import RealtimeStream, RealtimeWork
from velostream.errors import InternalError, SparkEndedError, VelostreamError
from velostream.model.health import HEALTHY, WELL
from velostream.model.jobs import BatchFigures, JobInfo, JobState, JobStats
from velostream.model.lifetime import Lifetime, while_open
from velostream.runtime.jobs.backoff import Backoff
from velostream.runtime.jobs.loop import StepLoop
from velostream.runtime.jobs.requests import Requests
from velostream.runtime.jobs.statistics import Statistics
from velostream.secrets import redact
from velostream.spark.failures import translate

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from pathlib import Path

    from pyspark.sql import SparkSession

    from velostream.engine.work import Work
    from velostream.model.health import Health

log = structlog.get_logger("velostream.job")

_SOON = 0.1
"""Seconds until the next poll where a source has more to say."""
_STATE_SECONDS = 0.5
"""Seconds between two measurements of the state's size."""


class Job:
    """One running statement. Thread safe."""

    def __init__(
        self,
        job_id: str,
        name: str,
        kind: str,
        statement: str,
        folder: Path,
        spark: Callable[[], SparkSession],
        open_work: Callable[[Job], Work],
        *,
        ready: Work | None = None,
        once: bool = False,
        on_change: Callable[[Job], None] = lambda _: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        lifetime: Lifetime | None = None,
        pace: timedelta | None = None,
    ) -> None:
        self._clock = clock
        self._pace = pace.total_seconds() if pace is not None else None
        self.lifetime = lifetime or Lifetime()
        """The lifetime of the database: no job starts after its end."""
        self.id = job_id
        self.name = name
        self.kind = kind
        self.statement = statement
        self._folder = folder
        self._spark = spark
        self._open_work = open_work
        self._ready = ready
        """Work for the first start, which was opened to find out whether the statement can be made."""
        self._once = once
        self._on_change = on_change
        self._state = JobState.STOPPED
        self._reason: str | None = None
        self._started_at: datetime | None = None
        self._statistics = Statistics()
        self._stop = threading.Event()
        self._news = threading.Event()
        """Set by sources that have something new, and to end a pause between two polls."""
        self._moved = threading.Condition()
        self._life = threading.RLock()
        """Held while deciding whether the thread continues, and which state the job has when it has ended."""
        self._thread: threading.Thread | None = None
        self._again = False
        self._target: JobState | None = None
        self.error: VelostreamError | None = None
        self.stopping = self._stop
        self._widened: set[str | None] = set()
        """Columns with which the job was reopened since its last batch."""
        self._in_a_row = 0
        """Consecutive failures of a kind that is retried only a limited number of times."""
        self._idle = False
        self._well = False
        """Whether the sources were healthy since this start of the job."""
        self.requests = Requests()
        """Requests of other threads, which the job's thread serves between two batches."""
        self.quiet_looks = 0
        """How many completed polls of the sources found everything processed."""
        self.health: Health = WELL
        """The health of the sources; the reason, where the job has to retry."""
        self._state_at = 0.0

    def __repr__(self) -> str:
        return repr(self.info)

    # --- life -----------------------------------------------------------------------------------------

    @property
    def state(self) -> JobState:
        """The state of the job."""
        return self._state

    @property
    def idle(self) -> bool:
        """Whether the job has polled its sources and found nothing (more) to process."""
        return self._idle

    @property
    def info(self) -> JobInfo:
        """The information of `SHOW JOBS`."""
        return JobInfo(
            self.id,
            self.name,
            self.kind,
            self._state,
            self._reason,
            self.statement,
            self._started_at,
            self._statistics.figures(),
        )

    @property
    def stats(self) -> JobStats:
        """Statistics since the job was started in this process."""
        return self._statistics.figures()

    @property
    def errors_by_code(self) -> dict[str, int]:
        """How often each error code occurred since the job was created."""
        return self._statistics.errors_by_code()

    @while_open
    def start(self) -> None:
        """Start, or restart after a stop, pause or failure: now, or when the current batch is done."""
        with self._life:
            if self._thread is not None and self._thread.is_alive():
                ended = not self._state.alive
                self._again = ended or self._stop.is_set()
                if ended:
                    self._become(JobState.STARTING)
                return
            self._stop.clear()
            self.error, self._in_a_row = None, 0
            self._become(JobState.STARTING)
            self._started_at = datetime.now(UTC)
            self._thread = threading.Thread(target=self._live_on, name=f"job {self.id}", daemon=True)
            self._thread.start()

    def stop(self, target: JobState = JobState.STOPPED, timeout: float = 30.0) -> None:
        """Stop after the current batch; `target` is STOPPED or PAUSED.

        The state changes when the job has ended, which may be after this call has given up waiting.
        """
        with self._life:
            self._stop.set()
            self._news.set()
            self._again = False
            self._target = target
            thread = self._thread
            if thread is None or not thread.is_alive():
                self._come_to_rest()
        with self._moved:
            self._moved.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    @property
    def ending(self) -> bool:
        """Whether the job was told to stop and has not ended yet."""
        thread = self._thread
        return thread is not None and thread.is_alive() and self._stop.is_set()

    def _come_to_rest(self) -> None:
        target, self._target = self._target, None
        if target is not None and self._state.may_become(target):
            self._become(target)

    def tell(self, state: JobState, reason: str | None) -> None:
        """Report the state of the job; called by what it opens, for example while it waits for a file."""
        if state is JobState.WAITING:
            self.health = ("degraded", reason)
        if state is not self._state or reason != self._reason:
            self._become(state, reason)

    def found_nothing(self) -> None:
        """Record a look for the first record of a source that found none: everything is processed."""
        self.lifetime.check()
        with self._moved:
            self.quiet_looks += 1
            self._moved.notify_all()

    def wait(self, condition: Callable[[Job], bool], timeout: float | None = None) -> bool:
        """Wait until the condition holds; False on timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._moved:
            while not condition(self):
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._moved.wait(0.5 if left is None else min(left, 0.5))
        return True

    def _become(self, state: JobState, reason: str | None = None) -> None:
        if state is not self._state and not self._state.may_become(state):
            raise InternalError(f"job {self.id} cannot go from {self._state} to {state}")
        reason = redact(reason) if reason else reason
        changed = state is not self._state or reason != self._reason
        with self._moved:
            self._state, self._reason = state, reason
            self._moved.notify_all()
        if changed:
            log.info("job", job=self.name, state=str(state), reason=reason)
            self._on_change(self)

    # --- the thread -----------------------------------------------------------------------------------

    def _live_on(self) -> None:
        """Run until stopped for good; a start during a stop that has not ended runs the job again here."""
        while True:
            self._run()
            with self._life:
                if not self._again:
                    self._thread = None
                    self._come_to_rest()
                    return
                self._again, self._target, self.error, self._in_a_row = False, None, None, 0
                self._started_at = datetime.now(UTC)
                self._stop.clear()

    def _run(self) -> None:
        backoff = Backoff()
        while not self._stop.is_set():
            try:
                self._live(backoff)
                return
            except Exception as exc:
                error = translate(exc)
                if isinstance(error, InternalError):
                    log.exception("job", job=self.name, reason=error.message)
                else:
                    log.debug("job", job=self.name, reason=error.message, exc_info=True)
                if not self._try_again(error, backoff):
                    return

    def _try_again(self, error: VelostreamError, backoff: Backoff) -> bool:
        if self._stop.is_set():
            return False
        if error.code == ColumnsWidenedError.code:
            if error.detail not in self._widened:
                self._widened.add(error.detail)
                return True
            error = InternalError(f"{error.message}, which opening it again did not take in")
        try:
            self._spark()
        except SparkEndedError as gone:
            error = gone
        self.error = error
        self._statistics.error(error.code)
        self._in_a_row = self._in_a_row + 1 if error.attempts is not None else 0
        if not self._may_try_again(error):
            tried = f"; tried {self._in_a_row} times" if self._in_a_row > 1 else ""
            self.health = ("failed", error.message + tried)
            self._become(JobState.FAILED, error.message + tried)
            return False
        delay = max(backoff.next(), error.retry_after or 0.0)
        self.health = (error.health, error.message)
        self._become(JobState.DEGRADED, f"{error.message}; trying again in {delay:.1f}s")
        self._stop.wait(delay)
        self._statistics.restart()
        return not self._stop.is_set()

    def _may_try_again(self, error: VelostreamError) -> bool:
        if error.attempts is None:
            return error.retryable and not self._once
        return error.retryable and self._in_a_row <= error.attempts

    def _live(self, backoff: Backoff) -> None:
        self._idle = False
        # An external failure is over when a poll of the sources succeeds, not when one is attempted.
        if self._state not in (JobState.STARTING, JobState.DEGRADED):
            self._become(JobState.STARTING)
        self._statistics.attempt()
        self._well = False
        work, self._ready = self._ready or self._open_work(self), None
        try:
            stream = self._stream(work)
            try:
                stream.start(self._spark())
                if self._state is not JobState.DEGRADED:
                    self.tell(JobState.RUNNING, None)
                finished = self._watch(work, stream, backoff)
            finally:
                stream.stop()
        finally:
            work.close()
        if finished:
            self._become(JobState.FINISHED)

    def _stream(self, work: Work) -> StepLoop | RealtimeStream:
        if isinstance(work, RealtimeWork):
            return RealtimeStream(self.id, work, self.counted, self._clock)
        return StepLoop(self.id, work, self._folder / "checkpoint", self.counted, self._clock)

    def _watch(self, work: Work, stream: StepLoop | RealtimeStream, backoff: Backoff) -> bool:
        """Poll and process until the job is stopped; True when it has finished."""
        self._statistics.begins()
        self._look_at_state(work, always=True)
        work.listen(self._news)
        while not self._stop.is_set():
            self._news.clear()
            if self._stop.is_set():
                break
            self._spark()
            self._look_at_state(work)
            self.requests.serve(work)
            have = work.offsets()
            end = work.latest(have)
            self._statistics.behind(work.lags())
            if end is not None and end != have:
                self._idle = False
                stream.advance_to(end, self._stop)
                backoff.reset()
                self._heal(work)
                continue
            self._heal(work)
            self._idle = work.settled()
            with self._moved:
                self.quiet_looks += self._idle
                self._moved.notify_all()
            if self._idle:
                self._in_a_row = 0
            if self._once or (have is not None and work.finished(have)):
                self._look_at_state(work, always=True)
                return True
            self._news.wait(self._pause(work))
        return False

    def _pause(self, work: Work) -> float:
        """Seconds until the next poll: short where the last one left something to a later one."""
        seconds = work.poll_seconds if self._idle else min(work.poll_seconds, _SOON)
        return seconds if self._pace is None else min(self._pace, seconds)

    def _look_at_state(self, work: Work, *, always: bool = False) -> None:
        now = time.monotonic()
        if always or now - self._state_at >= _STATE_SECONDS:
            self._state_at = now
            held = [table.held for table in work.state()]
            self._statistics.holds(sum(rows for rows, _ in held), sum(size for _, size in held), now)

    def _heal(self, work: Work) -> None:
        self.health = work.health()
        health, reason = self.health
        if health == HEALTHY:
            if not self._well:
                self._well = True
                self._statistics.success()
            self.tell(JobState.RUNNING, None)
        else:
            self.tell(JobState.DEGRADED, reason or health)

    def counted(self, figures: BatchFigures, seconds: float) -> None:
        """Record the statistics of one batch."""
        self._widened.clear()
        self._in_a_row = 0
        self._statistics.batch(figures, seconds)
        with self._moved:
            self._moved.notify_all()
