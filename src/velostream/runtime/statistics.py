"""Figures of one job, counted batch by batch."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import asdict
from datetime import UTC, datetime
from threading import Lock
from time import monotonic

from velostream.model.jobs import BatchFigures, JobStats

_WINDOW_SECONDS = 30.0
"""Rates are over this much of the past."""


class Statistics:
    """Counts since the start of the process; rates and latency over the last half minute."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._totals: Counter[str] = Counter()
        self._recent: deque[tuple[float, int, float]] = deque()
        self._last: datetime | None = None
        self._codes: Counter[str] = Counter()

    def batch(self, figures: BatchFigures, seconds: float) -> None:
        """One batch is done."""
        with self._lock:
            self._totals.update(asdict(figures))
            self._totals["batches"] += 1
            self._recent.append((monotonic(), figures.records_in, seconds))
            self._last = datetime.now(UTC)

    def error(self, code: str) -> None:
        """Something failed; `code` is the kind of error."""
        with self._lock:
            self._totals["errors"] += 1
            self._codes[code] += 1

    def errors_by_code(self) -> dict[str, int]:
        """How often each kind of error occurred."""
        with self._lock:
            return dict(self._codes)

    def restart(self) -> None:
        """The job was started again by itself."""
        with self._lock:
            self._totals["restarts"] += 1

    def figures(self) -> JobStats:
        """All of it as of now."""
        with self._lock:
            now = monotonic()
            while self._recent and self._recent[0][0] < now - _WINDOW_SECONDS:
                self._recent.popleft()
            rows = sum(count for _, count, _ in self._recent)
            spent = [seconds for _, _, seconds in self._recent]
            # The window begins where its first batch did, or one long batch would look like a fast one.
            span = max(now - self._recent[0][0] + spent[0], 1.0) if self._recent else _WINDOW_SECONDS
            return JobStats(
                **self._totals,
                rate_in=rows / span,
                last_batch_ms=(spent[-1] * 1000) if spent else 0.0,
                latency_ms=(sum(spent) / len(spent) * 1000) if spent else 0.0,
                last_batch_at=self._last,
            )
