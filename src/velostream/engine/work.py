"""The work of a job, as the thread that runs it sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from velostream.model.changes import Commit, SourceOffsets
    from velostream.model.jobs import BatchFigures
    from velostream.serving.table.table import Table


class Work(Protocol):
    """What a job does, opened: made anew for each start by the job's `open`."""

    def offsets(self) -> SourceOffsets | None:
        """The positions that the result contains."""

    def latest(self, after: SourceOffsets | None) -> SourceOffsets | None:
        """The newest positions that can be read; `after` itself when there is nothing new."""

    def advance(self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit) -> BatchFigures:
        """Do one step."""

    def lags(self) -> Mapping[str, int]:
        """How far each partition of the sources is ahead of the result."""

    def state(self) -> Sequence[Table]:
        """The tables that hold what the work has to remember to go on."""

    def settled(self) -> bool:
        """Whether the last look at the inputs left nothing to a later one."""

    def health(self) -> tuple[str, str | None]:
        """The worst health of the inputs, with its reason."""

    def finished(self, offsets: SourceOffsets) -> bool:
        """Whether nothing can come any more."""

    @property
    def poll_seconds(self) -> float:
        """How often to look for something new."""

    @property
    def trigger_seconds(self) -> float:
        """Least time between two batches."""

    def close(self) -> None:
        """Let go of everything."""
