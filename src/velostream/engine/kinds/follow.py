"""Steps that forward the changes of a table that the job keeps, without a query and so without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.engine.kinds.pipeline import Pipeline
from velostream.engine.rows.group_keys import absent, distinct_keys
from velostream.engine.runner import Progress

if TYPE_CHECKING:
    from velostream.model.changes import Commit, SourceOffsets


class FollowPipeline(Pipeline):
    """Rows added to the table below are added to the output, and rows retracted there are retracted."""

    by_row = True

    def _advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        (name,) = self.inputs.all
        came, went = self.inputs.arrow_changes(name, start.get(name) if start else None, end[name])
        added, removed = self._shape.stored(came), self._shape.stored(went)
        if self._shape.key:
            # The table below has the same key, so each key has one row at most.
            gone = absent(distinct_keys(removed.select(self._shape.key)), added)
            self._table.commit_keyed(added, gone if gone.num_rows else None, commit)
        else:
            self._output.rows(added, removed if removed.num_rows else None, commit)
        return Progress(came.num_rows + went.num_rows, came.num_rows + went.num_rows)
