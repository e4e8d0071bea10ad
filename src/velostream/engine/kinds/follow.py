"""A step that hands on the changes of a table that the job keeps: no query, and so no job of Spark's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.engine.kinds.pipeline import Pipeline, Progress
from velostream.engine.outputs.outputs import table_of
from velostream.engine.rows.groups import absent, distinct_keys

if TYPE_CHECKING:
    from velostream.model.changes import Commit, SourceOffsets


class FollowPipeline(Pipeline):
    """What comes into the table below comes into the output, and what is retracted there is retracted."""

    def advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        """See `Pipeline`; there is nothing to compute, so nothing that care would help."""
        (name,) = self._inputs.all
        came, went = self._inputs.arrow_changes(name, start.get(name) if start else None, end[name])
        added, removed = self._shape.stored(came), self._shape.stored(went)
        if self._shape.key:
            # The table below has the same key, so each key has one row at most.
            gone = absent(distinct_keys(removed.select(self._shape.key)), added)
            table_of(self._output).commit_keyed(added, gone if gone.num_rows else None, commit)
        else:
            self._output.rows(added, removed if removed.num_rows else None, commit)
        return Progress(came.num_rows + went.num_rows, came.num_rows + went.num_rows)
