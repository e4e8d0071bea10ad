"""The work of a statement with OVER over a source: kept rows and result, one step at a time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from velostream.engine.event_time.closing import WindowWork
from velostream.engine.over.pipeline import STEP, OverPipeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.model.changes import Commit, SourceOffsets
    from velostream.serving.table.store import TableStore
    from velostream.serving.table.table import Table


@dataclass
class OverWork(WindowWork):
    """See `job.Work` for the contract of its methods; the pipeline is an OverPipeline."""

    store: TableStore | None = field(default=None)
    """Where the kept rows are, if nobody else closes it."""
    kept: Table | None = field(default=None)
    """The kept rows."""

    @property
    def _windows(self) -> Any:
        assert isinstance(self.pipeline, OverPipeline)
        return self.pipeline

    def latest(self, after: SourceOffsets | None) -> SourceOffsets | None:
        """Where the inputs are; first of all where the kept rows are, when the result is not there yet."""
        behind: SourceOffsets | None = self._windows.unfinished(after)
        if behind is not None:
            return behind
        plain = {key: offset for key, offset in after.items() if key != STEP} if after is not None else None
        end = super().latest(plain)
        if end is None or end == plain:
            return after
        return {**end, STEP: {"n": self._windows.next_step}}

    def replay_end(self, have: SourceOffsets) -> SourceOffsets:
        """The next step, from where the inputs are."""
        return {**have, STEP: {"n": self._windows.next_step}}

    def catch_up(self, commit: Commit) -> None:
        """Bring the result to what the kept rows are."""
        have = self.offsets()
        behind = self._windows.unfinished(have)
        if behind is not None:
            self.advance(have, behind, replace(commit, offsets=behind))

    def state(self) -> Sequence[Table]:
        """The kept rows, in chunks by key."""
        return (self.kept,) if self.kept is not None else ()

    def close(self) -> None:
        """Close inputs, kept rows and output."""
        super().close()
        if self.store is not None:
            self.store.close()
