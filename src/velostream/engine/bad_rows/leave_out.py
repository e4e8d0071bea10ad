"""Bad rows of derived tables: rows that an inner step of a query cannot compute are left out by contents.

Whether a stateless step can compute a row depends on the row's contents alone, and whether a step by keys can
compute a key on the rows of that key alone. So the same rows are left out of the state before a change, of
the state after it, and of a full recompute, and no list of them has to be kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from velostream.engine.bad_rows.data_errors import maybe_data_error
from velostream.engine.bad_rows.search import Culprit, Search
from velostream.engine.inputs.inputs import without
from velostream.model.changes import BadRow
from velostream.model.columns import POSITION
from velostream.plan.derived.nodes import Scan
from velostream.sql.types import literal, quote

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from velostream.engine.inputs.evaluation import When
    from velostream.plan.derived.nodes import Each, Keyed, Side

_APART = "\x1f"
"""Separates the key of a row from its contents; both are JSON, which cannot contain it."""
_TOGETHER = "cannot be computed together with the other rows of its key: {}"


@dataclass
class Found:
    """The rows of one relation that the step above it cannot compute, by their contents."""

    before: dict[str, Culprit] = field(default_factory=dict)
    after: dict[str, Culprit] = field(default_factory=dict)

    def at(self, when: When) -> dict[str, Culprit]:
        """The bad rows before the change, or those after it."""
        return self.before if when == "before" else self.after


class Tolerance:
    """The rows that were found not to be computable, for every step of a query."""

    def __init__(self, spark: SparkSession, source: str) -> None:
        self._spark = spark
        self._source = source
        self.found: dict[str, Found] = defaultdict(Found)
        """Bad rows by the view of their relation, which only one step reads."""

    # --- steps that look at each row by itself ------------------------------------------------------------

    def computable(self, node: Each, rows: DataFrame, when: When) -> DataFrame:
        """The rows on which the step does not fail."""
        found = self.found[node.child.view]
        rows = rows if isinstance(node.child, Scan) else apart(rows)
        return self._searched(node.sql, node.child.view, rows, found.before | found.after, found.at(when))

    def _searched(
        self,
        sql: str,
        view: str,
        rows: DataFrame,
        known: Mapping[str, Culprit],
        found: dict[str, Culprit],
    ) -> DataFrame:
        """The rows on which a query does not fail, without known bad ones; new ones are added to `found`."""
        own = POSITION in rows.columns
        placed = rows if own else rows.selectExpr("*", contents())
        if known:
            placed = without(placed, set(known))
        search = Search(self._spark, sql, view, self._source)
        new = {culprit.position: culprit for culprit in search.culprits(placed)}
        found |= new
        if not known and not new:
            return rows
        good = without(placed, set(new)) if new else placed
        return good if own else good.drop(POSITION)

    # --- steps that compute a key from its rows -----------------------------------------------------------

    def computable_keys(self, node: Keyed, inputs: Sequence[DataFrame], when: When) -> list[DataFrame]:
        """The rows of each child with which the step does not fail.

        In a key that fails, a row is bad if it fails alone together with all rows of the other children. Left
        out are the bad rows of the child that has the fewest. Where the key still fails, all rows of its
        first child are left out.
        """
        streamed = next((n for n, rows in enumerate(inputs) if POSITION in rows.columns), None)
        if streamed is not None:
            return self._streamed(node, inputs, streamed, when)
        placed = [rows.selectExpr("*", _placed(side)) for side, rows in zip(node.sides, inputs, strict=True)]
        placed = self._left(node, placed, when)
        if not self._fails(node, placed):
            return [rows.drop(POSITION) for rows in placed]
        placed = [apart(rows) for rows in placed]
        failing = self._failing_keys(node, placed)
        alone = [self._alone(node, placed, number, failing) for number in range(len(placed))]
        counts = [Counter(map(key_of, side)) for side in alone]
        for number, side in enumerate(alone):
            chosen = {p: c for p, c in side.items() if number == _fewest(key_of(p), counts)}
            self.found[node.sides[number].node.view].at(when).update(chosen)
        placed = self._left(node, placed, when)
        if self._fails(node, placed):
            lost = self._of_keys(placed[0], self._failing_keys(node, placed))
            self.found[node.sides[0].node.view].at(when).update(lost)
            placed = self._left(node, placed, when)
        return [rows.drop(POSITION) for rows in placed]

    def _streamed(self, node: Keyed, inputs: Sequence[DataFrame], mine: int, when: When) -> list[DataFrame]:
        """Searches only the rows of a stream, which have positions and are joined once."""
        self._show(node, inputs)
        view = node.sides[mine].node.view
        found = self.found[view]
        rows = self._searched(node.sql, view, inputs[mine], found.at(when), found.at(when))
        return [rows if number == mine else other for number, other in enumerate(inputs)]

    def _left(self, node: Keyed, placed: Sequence[DataFrame], when: When) -> list[DataFrame]:
        known = [self.found[side.node.view].at(when) for side in node.sides]
        return [without(rows, set(gone)) if gone else rows for rows, gone in zip(placed, known, strict=True)]

    def _fails(self, node: Keyed, placed: Sequence[DataFrame]) -> bool:
        self._show(node, [rows.drop(POSITION) for rows in placed])
        try:
            self._spark.sql(node.sql).write.format("noop").mode("overwrite").save()
        except Exception as exc:
            if not maybe_data_error(exc):
                raise
            return True
        return False

    def _failing_keys(self, node: Keyed, placed: Sequence[DataFrame]) -> dict[str, str]:
        """The keys that the step cannot compute, and why."""
        self._show(node, [rows.drop(POSITION) for rows in placed])
        side = node.sides[0]
        keyed = placed[0].drop(POSITION).selectExpr("*", f"{key_texts(side)} AS {POSITION}")
        search = Search(self._spark, node.sql, side.node.view, self._source)
        return {culprit.position: culprit.row.reason for culprit in search.culprits(keyed)}

    def _alone(
        self, node: Keyed, placed: Sequence[DataFrame], number: int, keys: Collection[str]
    ) -> dict[str, Culprit]:
        """The rows of one child, with these keys, that fail alone together with all rows of the others."""
        self._show(node, [rows.drop(POSITION) for rows in placed])
        search = Search(self._spark, node.sql, node.sides[number].node.view, self._source)
        return {c.position: c for c in search.culprits(_with_keys(placed[number], keys))}

    def _of_keys(self, placed: DataFrame, keys: Mapping[str, str]) -> dict[str, Culprit]:
        """All rows of these keys, with the reasons."""
        columns = ", ".join(quote(name) for name in placed.columns if name != POSITION)
        rows = _with_keys(placed, keys).selectExpr(POSITION, f"to_json(struct({columns})) AS row").distinct()
        found = {}
        for position, text in zip(*(column.to_pylist() for column in rows.toArrow().columns), strict=True):
            reason = _TOGETHER.format(keys[key_of(position)])
            row = BadRow(reason, self._source, self._source, position, text.encode())
            found[position] = Culprit(position, row)
        return found

    def _show(self, node: Keyed, inputs: Sequence[DataFrame]) -> None:
        for side, rows in zip(node.sides, inputs, strict=True):
            rows.createOrReplaceTempView(quote(side.node.view))


def apart(rows: DataFrame) -> DataFrame:
    """The rows, materialized: Spark would push later conditions below the filter that leaves rows out."""
    return rows.localCheckpoint()


def contents() -> str:
    """An SQL expression for the contents of a row, which identify rows without positions."""
    return f"to_json(struct(*)) AS {POSITION}"


def key_texts(side: Side) -> str:
    """An SQL expression for the key of a row, as `key_of` returns it."""
    columns = ", ".join(map(quote, side.keys))
    return f"to_json(struct({columns}))" if side.keys else "''"


def key_of(position: str) -> str:
    """The key of a row of a step by keys."""
    return position.partition(_APART)[0]


def letter(culprit: Culprit) -> BadRow:
    """The dead letter of a row of a step by keys, which is identified by its contents."""
    return replace(culprit.row, offset=culprit.position.partition(_APART)[2])


def _placed(side: Side) -> str:
    return f"concat({key_texts(side)}, {literal(_APART)}, to_json(struct(*))) AS {POSITION}"


def _with_keys(placed: DataFrame, keys: Collection[str]) -> DataFrame:
    from pyspark.sql import functions

    key = functions.substring_index(placed[POSITION], _APART, 1)
    return placed.where(key.isin(sorted(keys)))


def _fewest(key: str, counts: Sequence[Counter[str]]) -> int:
    """The child with the fewest bad rows of a key, among those that have any."""
    return min((count[key], number) for number, count in enumerate(counts) if count[key])[1]
