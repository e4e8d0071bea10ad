"""The contract between a job's thread and what the job does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from threading import Event

    from velostream.model.changes import Commit, SourceOffsets
    from velostream.model.jobs import BatchFigures
    from velostream.serving.contract.table import Table


class Work(Protocol):
    """The opened work of a job; each start of the job opens a new one."""

    def offsets(self) -> SourceOffsets | None:
        """The positions that the result contains."""

    def latest(self, after: SourceOffsets | None) -> SourceOffsets | None:
        """The newest positions that can be read; `after` itself when there is nothing new."""

    def advance(self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit) -> BatchFigures:
        """Advance the result from `start` to `end`; an attempt that raises may be repeated."""

    def lags(self) -> Mapping[str, int]:
        """The lag of the result behind each partition of the sources."""

    def state(self) -> Sequence[Table]:
        """The tables that hold the state of the job."""

    def settled(self) -> bool:
        """Whether the last `latest` saw everything that the inputs had."""

    def health(self) -> tuple[str, str | None]:
        """The worst health of the inputs, with its reason."""

    def finished(self, offsets: SourceOffsets) -> bool:
        """Whether all inputs have ended and the result is complete."""

    @property
    def poll_seconds(self) -> float:
        """Seconds between two calls of `latest`, unless there is news."""

    def listen(self, news: Event) -> None:
        """Have `news` set when a source learns by itself that there is something new."""

    @property
    def trigger_seconds(self) -> float:
        """Least time between two batches."""

    def close(self) -> None:
        """Release sources, sinks and files."""
