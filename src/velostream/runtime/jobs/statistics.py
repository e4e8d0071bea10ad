"""Statistics of one job, updated batch by batch."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from datetime import UTC, datetime
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from velostream.model.jobs import BatchFigures, JobStats, PartitionStats
from velostream.model.moments import END_OF_TIME, moment

if TYPE_CHECKING:
    from collections.abc import Mapping

_COUNTED = ("records_in", "records_out", "bad_rows", "rows_looked_up", "lookup_misses", "late_rows")

_WINDOW_SECONDS = 30.0
"""Rates are averaged over this many seconds."""
_GROWTH_SECONDS = 300.0
"""The growth of state is measured over this many seconds,"""
_GROWTH_STEP = 5.0
"""sampled no more often than this,"""
_GROWTH_LEAST = 1.0
"""and reported as none over a shorter time than this."""


class Statistics:
    """Counters since the start of the process; rates and latency over the last half minute."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._totals: Counter[str] = Counter()
        self._recent: deque[tuple[float, BatchFigures, float]] = deque()
        self._partitions: Counter[str] = Counter()
        self._lags: Mapping[str, int] = {}
        self._last: datetime | None = None
        self._watermark: int | None = None
        self._event_times: Mapping[str, int] = {}
        self._codes: Counter[str] = Counter()
        self._state: tuple[int, int] | None = None
        self._grown: deque[tuple[float, int]] = deque()

    def batch(self, figures: BatchFigures, seconds: float) -> None:
        """Record one batch."""
        with self._lock:
            self._totals.update({name: getattr(figures, name) for name in _COUNTED})
            self._totals["batches"] += 1
            self._partitions.update(figures.by_partition)
            self._recent.append((monotonic(), figures, seconds))
            self._last = datetime.now(UTC)
            if figures.watermark is not None or figures.event_times:
                self._watermark, self._event_times = figures.watermark, figures.event_times

    def behind(self, lags: Mapping[str, int]) -> None:
        """Record the lag: how many records of each partition are not processed yet."""
        self._lags = lags

    def holds(self, rows: int, size: int, at: float) -> None:
        """Record the size of the state, in rows and bytes, at a time of the monotonic clock."""
        with self._lock:
            self._state = (rows, size)
            if not self._grown or at - self._grown[-1][0] >= _GROWTH_STEP:
                self._grown.append((at, rows))
            while self._grown[0][0] < at - _GROWTH_SECONDS:
                self._grown.popleft()

    def begins(self) -> None:
        """Record the start of the job: growth of state is measured from here."""
        with self._lock:
            self._grown.clear()

    def _growth(self, now: float) -> float | None:
        """Growth of state, in rows a minute."""
        if self._state is None or not self._grown:
            return None
        since, rows = self._grown[0]
        passed = now - since
        return (self._state[0] - rows) * 60.0 / passed if passed >= _GROWTH_LEAST else None

    def error(self, code: str) -> None:
        """Record a failure; `code` is the kind of error."""
        with self._lock:
            self._totals["errors"] += 1
            self._codes[code] += 1

    def errors_by_code(self) -> dict[str, int]:
        """How often each kind of error occurred."""
        with self._lock:
            return dict(self._codes)

    def attempt(self) -> None:
        """Record an attempt to open the job's inputs and output."""
        with self._lock:
            self._totals["attempts"] += 1

    def success(self) -> None:
        """Record that the attempt succeeded."""
        with self._lock:
            self._totals["successes"] += 1

    def restart(self) -> None:
        """Record an automatic restart."""
        with self._lock:
            self._totals["restarts"] += 1

    def figures(self) -> JobStats:
        """A snapshot of all statistics."""
        with self._lock:
            now = monotonic()
            while self._recent and self._recent[0][0] < now - _WINDOW_SECONDS:
                self._recent.popleft()
            rows = sum(figures.records_in for _, figures, _ in self._recent)
            spent = [seconds for _, _, seconds in self._recent]
            # The window starts where its first batch started;
            # otherwise one long batch would look like a fast one.
            span = max(now - self._recent[0][0] + spent[0], 1.0) if self._recent else _WINDOW_SECONDS
            return JobStats(
                **self._totals,
                rate_in=rows / span,
                last_batch_ms=(spent[-1] * 1000) if spent else 0.0,
                latency_ms=(sum(spent) / len(spent) * 1000) if spent else 0.0,
                last_batch_at=self._last,
                watermark=_shown(self._watermark),
                lag=sum(self._lags.values()) if self._lags else None,
                state_rows=self._state[0] if self._state is not None else None,
                state_bytes=self._state[1] if self._state is not None else None,
                state_growth=self._growth(now),
                partitions=self._by_partition(span),
            )

    def _by_partition(self, span: float) -> tuple[PartitionStats, ...]:
        recent: Counter[str] = Counter()
        spent: defaultdict[str, list[float]] = defaultdict(list)
        for _, figures, seconds in self._recent:
            recent.update(figures.by_partition)
            for name in (name for name, records in figures.by_partition.items() if records):
                spent[name].append(seconds * 1000)
        return tuple(
            PartitionStats(
                name,
                self._partitions[name],
                recent[name] / span,
                sum(spent[name]) / len(spent[name]) if spent[name] else None,
                self._lags.get(name),
                _shown(self._event_times.get(name)),
            )
            for name in sorted({*self._partitions, *self._lags, *self._event_times})
        )


def _shown(at: int | None) -> datetime | None:
    """The time, or None beyond what a calendar can represent."""
    return moment(at) if at is not None and at < END_OF_TIME else None
