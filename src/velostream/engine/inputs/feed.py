"""The feed of a pipeline: the rows of a derived relation, read like those of an input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.engine.bad_rows.leave_out import Tolerance, apart, contents, key_of, key_texts, letter
from velostream.engine.inputs.evaluation import Evaluation, Restriction
from velostream.engine.inputs.inputs import without
from velostream.engine.runner import Halves
from velostream.model.columns import POSITION
from velostream.plan.derived.nodes import Each, Keyed, Node, walk
from velostream.spark.dataframes import arrow_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from velostream.engine.inputs.inputs import Inputs
    from velostream.engine.runner import Runner
    from velostream.model.changes import BadRow, SourceOffsets

MANY_ROWS = 1000
"""Changes of fewer rows than this are always evaluated by affected keys."""
MOST_ROWS = 200_000
"""More changes than this of a table in Delta Lake are not collected to the driver."""
MOST_SHARE = 3
"""When more than one row in this many changed, a full recompute is cheaper than looking keys up."""
FEW_ROWS = 1000
"""Over inputs of up to this many rows, one run of the whole query beats the several runs by key."""


class DerivedFeed:
    """The rows of a derived relation between positions of a job's inputs."""

    def __init__(self, runner: Runner, inputs: Inputs, node: Node) -> None:
        self._runner = runner
        self._spark = runner.spark
        self._inputs = inputs
        self._node = node
        self.excluded: dict[str, set[str]] = {}
        """Rows that cannot be computed, by their contents: they are left out of every frame."""
        self._evaluation: Evaluation | None = None
        self._tolerance: Tolerance | None = None
        self._rows_read = 0
        self._misses = 0

    @property
    def descriptions(self) -> Mapping[str, str]:
        """The name of the relation in messages."""
        return {self._node.view: ", ".join(item.description for item in self._inputs.all.values())}

    def begin(self, start: SourceOffsets | None, end: SourceOffsets) -> None:
        """Begin a new range."""
        self._settle()
        self._evaluation = Evaluation(self._runner, self._inputs, start, end, self._tolerance)

    def _settle(self) -> None:
        if self._evaluation is not None:
            self._rows_read += self._evaluation.rows_read
            self._evaluation = None

    def take_figures(self) -> tuple[int, int]:
        """The number of rows read since the last call, and of stream rows without a match."""
        self._settle()
        figures = self._rows_read, self._misses
        self._rows_read = self._misses = 0
        return figures

    def cheaper_whole(self, start: SourceOffsets | None, end: SourceOffsets, held: int) -> bool:
        """Whether a full recompute is cheaper than affected keys: the inputs are small, or mostly changed.

        `held` is the number of rows of the result, which a full recompute has to compare.
        """
        if start is None:
            return False
        if self._inputs.far_too_many(start, end, MOST_ROWS):
            return True
        size = self._inputs.size({key: end[key] for key in self._inputs.all})
        if max(size, held) <= FEW_ROWS:
            return True
        self.begin(start, end)
        assert self._evaluation is not None
        changed = self._evaluation.changes(self._node)
        return changed > MANY_ROWS and changed * MOST_SHARE > size

    def changes(
        self, start: SourceOffsets | None, end: SourceOffsets, extra: tuple[str, ...], *, careful: bool
    ) -> dict[str, Halves]:
        """Rows added and retracted. Unless `careful`, the same row may be in both halves."""
        if start is None:
            return {key: Halves(frame, None) for key, frame in self.snapshot(end, extra).items()}
        self.begin(start, end)
        assert self._evaluation is not None
        if careful:
            delta = self._evaluation.delta(self._node)
            came, went = arrow_frame(self._spark, delta.came), arrow_frame(self._spark, delta.went)
        else:
            came, went = self._evaluation.halves(self._node)
        return {self._node.view: Halves(self._usable(came, extra), self._usable(went, extra))}

    def snapshot(
        self, end: SourceOffsets, extra: tuple[str, ...] = (), *, careful: bool = False
    ) -> dict[str, DataFrame]:
        """All rows as of `end`."""
        self.begin(None, end)
        assert self._evaluation is not None
        return {self._node.view: self._usable(self._evaluation.frame(self._node, "after", None), extra)}

    def restricted(
        self,
        end: SourceOffsets,
        columns: tuple[str, ...],
        keys: pa.Table,
        extra: tuple[str, ...] = (),
        *,
        careful: bool,
    ) -> dict[str, DataFrame]:
        """Rows as of `end` whose columns are among the keys."""
        only = Restriction(columns, keys) if columns else None
        evaluation = self._evaluation or Evaluation(self._runner, self._inputs, None, end, self._tolerance)
        self._evaluation = evaluation
        return {self._node.view: self._usable(evaluation.frame(self._node, "after", only), extra)}

    def forget_excluded(self) -> None:
        """Try rows again that could not be computed: later rows may have the same contents."""
        self.excluded.clear()
        self._tolerance = None
        self._settle()

    def computing_errors(self, start: SourceOffsets | None, end: SourceOffsets) -> list[BadRow]:
        """Added rows that a step within the query cannot compute; from now on they are left out."""
        self._tolerance = Tolerance(self._spark, self.descriptions[self._node.view])
        self.changes(start, end, (), careful=True)
        evaluation, found = self._evaluation, self._tolerance.found
        assert evaluation is not None
        bad: list[BadRow] = []
        for node in walk(self._node):
            if isinstance(node, Each) and node.child.view in found:
                here = found[node.child.view]
                came = self._came(evaluation, node.child, start)
                culprits = (here.before | here.after).items()
                bad += [culprit.row for at, culprit in culprits if came is None or at in came]
            if isinstance(node, Keyed) and any(side.node.view in found for side in node.sides):
                touched = self._touched(evaluation, node, start)
                for side in node.sides:
                    here = found[side.node.view]
                    new = {at: c for at, c in here.after.items() if at not in here.before}
                    bad += [letter(c) for at, c in new.items() if touched is None or key_of(at) in touched]
        return bad

    def _touched(self, evaluation: Evaluation, node: Keyed, start: SourceOffsets | None) -> set[str] | None:
        """The affected keys of a node; None when all are."""
        if start is None:
            return None
        found: set[str] = set()
        for side in node.sides:
            delta = evaluation.delta(side.node)
            rows = arrow_frame(self._spark, pa.concat_tables([delta.came, delta.went]))
            found |= set(
                self._runner.rows(rows.selectExpr(f"{key_texts(side)} AS key")).column("key").to_pylist()
            )
        return found

    def _came(self, evaluation: Evaluation, node: Node, start: SourceOffsets | None) -> set[str] | None:
        """The contents of the rows added to a node; None when all rows are new."""
        if start is None:
            return None
        rows = arrow_frame(self._spark, evaluation.delta(node).came)
        return set(self._runner.rows(rows.selectExpr(contents())).column(POSITION).to_pylist())

    def _usable(self, frame: DataFrame, extra: tuple[str, ...]) -> DataFrame:
        excluded = self.excluded.get(self._node.view)
        if not excluded and POSITION not in extra:
            return frame
        frame = apart(frame)
        own = POSITION in frame.columns
        placed = frame if own else frame.selectExpr("*", contents())
        if excluded:
            placed = without(placed, excluded)
        return placed if own or POSITION in extra else placed.drop(POSITION)
