"""The time that a command may run: `--for`."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta


class Limit:
    """The time of `--for`, which begins once: when everything has started, or something waits."""

    def __init__(self, lasts: timedelta | None) -> None:
        self.lasts = lasts
        self.over: Callable[[], None] = lambda: None
        """Called when the time is over."""
        self._timer: threading.Timer | None = None
        self._began: float | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Begin to count, unless that has begun."""
        with self._lock:
            if self._began is not None:
                return
            self._began = time.monotonic()
            if self.lasts is not None:
                self._timer = threading.Timer(self.lasts.total_seconds(), self.over)
                self._timer.daemon = True
                self._timer.start()

    @property
    def passed(self) -> float:
        """Seconds since it began."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    @property
    def left(self) -> float | None:
        """Seconds that are left; None without a limit."""
        return None if self.lasts is None else self.lasts.total_seconds() - self.passed

    def end(self) -> None:
        """Count no longer."""
        if self._timer is not None:
            self._timer.cancel()
