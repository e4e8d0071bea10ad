"""What others have the thread of a job do, between two batches."""

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
class _Question:
    task: Callable[[Work], object]
    answered: threading.Event = field(default_factory=threading.Event)
    answer: object = None
    error: BaseException | None = None


class Questions:
    """Tasks that wait for the thread of one job."""

    def __init__(self) -> None:
        self._waiting: deque[_Question] = deque()

    def ask(self, job: Job, task: Callable[[Work], T], patience: float = 30.0) -> T:
        """Have the thread of the job do something with its work, and wait for the answer.

        A job that has read everything starts again for it. JobError when the job is not well for so long.
        """
        question = _Question(task)
        self._waiting.append(question)
        well = time.monotonic()
        while not question.answered.wait(0.05):
            state = job.state
            if state is JobState.FINISHED:
                job.start()
            if state in (JobState.RUNNING, JobState.FINISHED):
                well = time.monotonic()
            if state is JobState.FINISHED or (state.alive and time.monotonic() - well < patience):
                continue
            try:
                self._waiting.remove(question)
            except ValueError:
                # It is being answered.
                continue
            reason = job.info.reason
            raise JobError(
                f'job "{job.name}" is {state}' + (f": {reason}" if reason else ""),
                hint=f"RESUME JOB {job.name}" if not state.alive else "try again when it runs",
            )
        if question.error is not None:
            raise question.error
        return cast("T", question.answer)

    def answer(self, work: Work) -> None:
        """Do what was asked for; what goes wrong is told to who asked, and here if the job must know."""
        while self._waiting:
            question = self._waiting.popleft()
            try:
                question.answer = question.task(work)
            except BaseException as exc:
                question.error = exc
                if not isinstance(exc, VelostreamError) or isinstance(exc, ReplayInterruptedError):
                    raise
            finally:
                question.answered.set()
