"""Jobs as data: states, the allowed moves between them, and statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class JobState(StrEnum):
    """Where a job is in its life."""

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
        """Whether the job still does, or will again do, work by itself."""
        return self in _ALIVE

    def may_become(self, target: JobState) -> bool:
        """Whether the state machine has this move."""
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
    _S.DEGRADED: frozenset({_S.STARTING, _S.RUNNING, _S.PAUSED, _S.FAILED, _S.STOPPED, _S.FINISHED}),
    _S.PAUSED: frozenset({_S.STARTING, _S.STOPPED, _S.FAILED}),
    _S.FAILED: frozenset({_S.STARTING, _S.STOPPED}),
    _S.STOPPED: frozenset({_S.STARTING}),
    # finished: a bounded job read all there is; a restart looks for more
    _S.FINISHED: frozenset({_S.STARTING, _S.STOPPED}),
}


@dataclass(frozen=True)
class PartitionStats:
    """Figures of one partition of a job's source."""

    partition: str
    records: int
    rate: float
    """Records per second, over the last half minute."""
    latency_ms: float | None
    """How long batches with records of it took, over the same time."""
    lag: int | None
    event_time: datetime | None = None
    """The latest that was seen, where windows wait for it."""


@dataclass(frozen=True)
class JobStats:
    """Figures of one job since it was started in this process, plus what it has persisted."""

    records_in: int = 0
    records_out: int = 0
    batches: int = 0
    bad_rows: int = 0
    errors: int = 0
    restarts: int = 0
    attempts: int = 0
    """How often the job set out to open what it reads and writes."""
    successes: int = 0
    """How often it then got to a first look at its sources that found them well."""
    rows_looked_up: int = 0
    """Rows taken out of tables to follow changes through joins and groups."""
    lookup_misses: int = 0
    """Rows of a stream that found no row in a table they are joined to."""
    late_rows: int = 0
    """Rows whose window had closed when they came."""
    watermark: datetime | None = None
    """How far event time has come in every partition that is not idle; None where nothing waits for that."""
    rate_in: float = 0.0
    last_batch_ms: float = 0.0
    latency_ms: float = 0.0
    last_batch_at: datetime | None = None
    lag: int | None = None
    """Records that the sources have and the job has not; None where no source can tell."""
    state_rows: int | None = None
    """Rows that the job has to remember to go on: groups, last rows of keys, rows kept beside it; None before
    it has looked."""
    state_bytes: int | None = None
    """Memory of these rows and their indexes."""
    state_growth: float | None = None
    """By how many rows a minute they became more, over the last five minutes or since the job began."""
    partitions: tuple[PartitionStats, ...] = ()


@dataclass(frozen=True)
class BatchFigures:
    """What one batch did."""

    records_in: int
    records_out: int
    bad_rows: int = 0
    rows_looked_up: int = 0
    lookup_misses: int = 0
    by_partition: Mapping[str, int] = field(default_factory=dict)
    """Records of each partition, where the source has such."""
    late_rows: int = 0
    watermark: int | None = None
    """In microseconds; None where nothing waits for one."""
    event_times: Mapping[str, int] = field(default_factory=dict)
    """The latest event time of each partition."""


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
