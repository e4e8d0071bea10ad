"""Waiting for what a statement needs and what is not there yet: a broker, a topic, a file, a first record."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import count
from logging import DEBUG, WARNING
from typing import TYPE_CHECKING

import structlog

from velostream.errors import SourceEmptyError, VelostreamError
from velostream.model.reach import Reach

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from threading import Event

log = structlog.get_logger("velostream.connectors")

_RECORD_SECONDS = 0.5
"""Seconds between two looks for the first record of a source."""
_TELL_SECONDS = 60.0
"""Seconds between two of them that are in the log; those between are there at level debug."""


@dataclass(frozen=True)
class Waiting:
    """How a statement waits for what its sources and its sink need: told, logged and counted."""

    stop: Event
    """Set when nobody wants the statement any more."""
    tell: Callable[[str], None]
    """Called with the reason for waiting, at each attempt."""
    count: Callable[[str], None] = lambda _: None
    """Called with the outcome of each attempt: `ok`, or the code of its error."""
    name: str = ""
    """The statement, in the log."""
    first_record: bool = False
    """Whether to wait for a record that tells the columns of a source, for as long as it takes."""
    reach: Reach = field(default_factory=Reach)
    """Which addresses may be looked at; only what the properties name was checked so far."""

    def until(
        self,
        attempt: Callable[[], object],
        absent: tuple[type[VelostreamError], ...],
        timeout: timedelta,
        delay: Callable[[int], timedelta],
    ) -> None:
        """Wait until `attempt` succeeds; raises its error when `timeout` has passed.

        Errors of the classes `absent` are waited for. `delay` is called after each attempt, for the time
        until the next.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        for number in count(1):
            try:
                attempt()
            except absent as exc:
                self.count(exc.code)
                if self.first_record and isinstance(exc, SourceEmptyError):
                    # Twice a second for days would leave no room in the log for anything else.
                    told = number % (_TELL_SECONDS / _RECORD_SECONDS) == 1
                    then = f"looking again every {_RECORD_SECONDS:g}s"
                    self._log(number, exc, then, level=WARNING if told else DEBUG)
                    self._pause_for_a_record(exc)
                    continue
                left = deadline - time.monotonic()
                if left <= 0 or self.stop.is_set():
                    self._log(number, exc, "no longer waited for")
                    raise
                self._log(number, exc, f"trying again for {left:.0f}s")
                self.tell(f"attempt {number}: {exc.message}; trying again for {left:.0f}s")
                pause = max(delay(number).total_seconds(), exc.retry_after or 0.0)
                self.stop.wait(min(pause, left))
            except VelostreamError as exc:
                self.count(exc.code)
                self._log(number, exc, "not tried again")
                raise
            else:
                self.count("ok")
                return

    def _pause_for_a_record(self, exc: SourceEmptyError) -> None:
        self.tell(exc.message)
        if self.stop.wait(_RECORD_SECONDS):
            raise exc

    def _log(self, number: int, exc: VelostreamError, then: str, *, level: int = WARNING) -> None:
        given = {"job": self.name, "number": number, "code": exc.code, "reason": exc.message, "then": then}
        log.log(level, "attempt", **given)
