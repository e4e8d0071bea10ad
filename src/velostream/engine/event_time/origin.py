"""Origin of kept rows: the step that added them, read again for their positions at the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from velostream.model.columns import POSITION
from velostream.plan.plans import RowsPlan
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from velostream.engine.inputs.inputs import Input
    from velostream.engine.kinds.pipeline import Pipeline
    from velostream.model.changes import SourceOffsets


@dataclass(frozen=True)
class Origin:
    """The step that kept some rows of a source; during a replay of dead letters, the replayed records."""

    pipeline: Pipeline
    start: SourceOffsets | None
    end: SourceOffsets

    @property
    def item(self) -> Input:
        """The source."""
        return self.pipeline.inputs.only

    def frame(self) -> DataFrame | None:
        """The rows that the step kept, with `_position`; None where a kept row stands for several records."""
        tree = parse_one(self.pipeline.row_sql, dialect=SPARK)
        if not isinstance(self.pipeline.plan, RowsPlan) or not isinstance(tree, exp.Select):
            return None
        seen = self.pipeline.inputs.seen
        told = not seen.unread
        changes = self.pipeline.feed.changes(self.start, self.end, (POSITION,), careful=True)
        runner = self.pipeline.runner
        runner.show({key: halves.plus for key, halves in changes.items()})
        if told:
            # Their event times were observed when they first arrived, and must not count again.
            seen.forget()
        place = exp.column(POSITION, table=tree.args["from_"].this.alias_or_name, quoted=True)
        return runner.frame(tree.select(place).sql(dialect=SPARK))
