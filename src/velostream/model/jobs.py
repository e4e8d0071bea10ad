"""Jobs as data: states, the allowed moves between them, and statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class JobState(StrEnum):
    """The state of a job."""

    STARTING = "starting"
    WAITING = "waiting"
    RUNNING = "running"
    DEGRADED = "degraded"
    PAUSED = "paused"
    FAILED = "failed"
    STOPPED = "stopped"
    FINISHED = "finished"

    @property
    def alive(self) -> bool:
        """Whether the job runs, or will run again by itself."""
        return self in _ALIVE

    def may_become(self, target: JobState) -> bool:
        """Whether the state machine has this transition."""
        return target in TRANSITIONS[self]


_ALIVE = frozenset({JobState.STARTING, JobState.WAITING, JobState.RUNNING, JobState.DEGRADED})

_S = JobState
TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    # starting: sources are opened, the plan is made, state is recovered
    _S.STARTING: frozenset(
        {_S.WAITING, _S.RUNNING, _S.DEGRADED, _S.PAUSED, _S.FAILED, _S.STOPPED, _S.FINISHED}
    ),
    # waiting: a source does not exist yet, or a topic has no record to discover columns from
    _S.WAITING: frozenset({_S.STARTING, _S.RUNNING, _S.DEGRADED, _S.PAUSED, _S.FAILED, _S.STOPPED}),
    _S.RUNNING: frozenset({_S.DEGRADED, _S.PAUSED, _S.FAILED, _S.STOPPED, _S.FINISHED, _S.STARTING}),
    # degraded: a source or sink went away; the table stays readable, we retry with backoff
    _S.DEGRADED: frozenset(
        {_S.STARTING, _S.WAITING, _S.RUNNING, _S.PAUSED, _S.FAILED, _S.STOPPED, _S.FINISHED}
    ),
    _S.PAUSED: frozenset({_S.STARTING, _S.STOPPED, _S.FAILED}),
    _S.FAILED: frozenset({_S.STARTING, _S.STOPPED}),
    _S.STOPPED: frozenset({_S.STARTING}),
    # finished: a bounded job read all there is; a restart looks for more
    _S.FINISHED: frozenset({_S.STARTING, _S.STOPPED}),
}


@dataclass(frozen=True)
class PartitionStats:
    """Statistics of one partition of a job's source."""

    partition: str
    records: int
    rate: float
    """Records per second, over the last half minute."""
    latency_ms: float | None
    """Duration of batches with records of it, over the same time."""
    lag: int | None
    event_time: datetime | None = None
    """The latest event time seen, where windows wait for it."""


@dataclass(frozen=True)
class JobStats:
    """Statistics of one job since it was started in this process, plus persisted ones."""

    records_in: int = 0
    records_out: int = 0
    batches: int = 0
    bad_rows: int = 0
    errors: int = 0
    restarts: int = 0
    attempts: int = 0
    """How often the job tried to open its inputs and output."""
    successes: int = 0
    """How often it then completed a first poll of healthy sources."""
    rows_looked_up: int = 0
    """Rows read from tables to evaluate joins and groups incrementally."""
    lookup_misses: int = 0
    """Rows of a stream without a match in a table they are joined to."""
    late_rows: int = 0
    """Rows that arrived after their window had closed."""
    watermark: datetime | None = None
    """The watermark over all partitions that are not idle; None where nothing waits for it."""
    rate_in: float = 0.0
    last_batch_ms: float = 0.0
    latency_ms: float = 0.0
    last_batch_at: datetime | None = None
    lag: int | None = None
    """Lag: records that the sources have and the job has not processed; None where no source knows."""
    state_rows: int | None = None
    """Rows of the job's state: groups, last rows of keys, kept rows; None before it was measured."""
    state_bytes: int | None = None
    """Memory of the state, with its indexes."""
    state_growth: float | None = None
    """Growth of the state in rows a minute, over the last five minutes or since the job began."""
    partitions: tuple[PartitionStats, ...] = ()


@dataclass(frozen=True)
class BatchFigures:
    """Statistics of one batch."""

    records_in: int
    records_out: int
    bad_rows: int = 0
    rows_looked_up: int = 0
    lookup_misses: int = 0
    by_partition: Mapping[str, int] = field(default_factory=dict)
    """Records of each partition, where the source has partitions."""
    late_rows: int = 0
    watermark: int | None = None
    """In microseconds; None where nothing waits for one."""
    event_times: Mapping[str, int] = field(default_factory=dict)
    """The latest event time of each partition."""

    def __add__(self, other: BatchFigures) -> BatchFigures:
        """What two stages of one step did together."""
        marks = [each.watermark for each in (self, other) if each.watermark is not None]
        return BatchFigures(
            self.records_in + other.records_in,
            self.records_out + other.records_out,
            self.bad_rows + other.bad_rows,
            self.rows_looked_up + other.rows_looked_up,
            self.lookup_misses + other.lookup_misses,
            {**self.by_partition, **other.by_partition},
            self.late_rows + other.late_rows,
            max(marks, default=None),
            {**self.event_times, **other.event_times},
        )


@dataclass(frozen=True)
class JobInfo:
    """One row of `SHOW JOBS`."""

    id: str
    name: str
    kind: str
    state: JobState
    reason: str | None
    statement: str
    started_at: datetime | None
    stats: JobStats

    def __repr__(self) -> str:
        figures = f"{self.stats.records_in:,} rows in, {self.stats.records_out:,} out"
        reason = f", {self.reason}" if self.reason else ""
        return f"<Job {self.name}: {self.state}, {figures}{reason}>"
