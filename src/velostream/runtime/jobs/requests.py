"""Requests to a job's thread, served between two batches."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

from velostream.errors import JobError, ReplayInterruptedError, VelostreamError
from velostream.model.jobs import JobState

if TYPE_CHECKING:
    from collections.abc import Callable

    from velostream.engine.work import Work
    from velostream.runtime.jobs.job import Job

T = TypeVar("T")


@dataclass(eq=False)
class _Request:
    task: Callable[[Work], object]
    served: threading.Event = field(default_factory=threading.Event)
    result: object = None
    error: BaseException | None = None


class Requests:
    """A queue of requests to the thread of one job."""

    def __init__(self) -> None:
        self._waiting: deque[_Request] = deque()

    def ask(self, job: Job, task: Callable[[Work], T], patience: float = 30.0) -> T:
        """Have the job's thread call a function with its work, and wait for the result.

        A job that has finished starts again for it. Raises JobError when the job is not running for too long.
        """
        request = _Request(task)
        self._waiting.append(request)
        well = time.monotonic()
        while not request.served.wait(0.05):
            state = job.state
            if state is JobState.FINISHED:
                job.start()
            if state in (JobState.RUNNING, JobState.FINISHED):
                well = time.monotonic()
            if state is JobState.FINISHED or (state.alive and time.monotonic() - well < patience):
                continue
            try:
                self._waiting.remove(request)
            except ValueError:
                # The request is being served.
                continue
            reason = job.info.reason
            raise JobError(
                f'job "{job.name}" is {state}' + (f": {reason}" if reason else ""),
                hint=f"RESUME JOB {job.name}" if not state.alive else "try again when it runs",
            )
        if request.error is not None:
            raise request.error
        return cast("T", request.result)

    def serve(self, work: Work) -> None:
        """Serve the requests; an error is raised to the caller, and here as well if the job must see it."""
        while self._waiting:
            request = self._waiting.popleft()
            try:
                request.result = request.task(work)
            except BaseException as exc:
                request.error = exc
                if not isinstance(exc, VelostreamError) or isinstance(exc, ReplayInterruptedError):
                    raise
            finally:
                request.served.set()
