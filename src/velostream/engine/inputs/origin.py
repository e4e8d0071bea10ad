"""Where rows come from that are kept beside a job: the step that brought them, read again with positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from velostream.engine.kinds.pipeline import row_sql
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
    """One step of what keeps the rows of a source; while letters are replayed, their records."""

    pipeline: Pipeline
    start: SourceOffsets | None
    end: SourceOffsets

    @property
    def item(self) -> Input:
        """The source."""
        return self.pipeline.inputs.only

    def frame(self) -> DataFrame | None:
        """The rows that came, as they are kept, with `_position`; None where a row stands for several."""
        tree = parse_one(row_sql(self.pipeline.plan), dialect=SPARK)
        if not isinstance(self.pipeline.plan, RowsPlan) or not isinstance(tree, exp.Select):
            return None
        seen = self.pipeline.inputs.seen
        told = not seen.unread
        changes = self.pipeline.feed.changes(self.start, self.end, (POSITION,), careful=True)
        self.pipeline.feed.register({key: halves.plus for key, halves in changes.items()})
        if told:
            # Their event times were seen when they came.
            seen.forget()
        place = exp.column(POSITION, table=tree.args["from_"].this.alias_or_name, quoted=True)
        return self.pipeline.spark.sql(tree.select(place).sql(dialect=SPARK))
