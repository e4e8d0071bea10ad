"""Steps that recompute the whole result and apply the difference, where no affected keys can be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.engine.kinds.pipeline import Pipeline

if TYPE_CHECKING:
    from velostream.engine.runner import Progress
    from velostream.model.changes import Commit, SourceOffsets


class RecomputePipeline(Pipeline):
    """Full recompute: each step costs as much as the whole result, its commit only what differs."""

    def _advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        return self.rebuild(end, commit)

    def _whole(self, end: SourceOffsets) -> str:
        self._runner.show(self.feed.snapshot(end))
        return self.row_sql
