"""Incremental evaluation of derived relations between two positions of their inputs.

The work follows the affected keys: rows with the keys in a change are looked up in the tables below, before
and after the change, and the same SQL runs over both. The rows "before" are reconstructed from the current
ones and the change, so that nothing but the tables themselves is kept as state.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.rows.multisets import among, before, codes, distinct, net, split_nulls, with_nulls
from velostream.errors import InternalError
from velostream.plan.derived.nodes import INNER, Both, Each, Keyed, Node, Scan, Side
from velostream.spark.dataframes import arrow_frame, empty_frame
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from velostream.engine.bad_rows.leave_out import Tolerance
    from velostream.engine.inputs.inputs import Inputs
    from velostream.engine.runner import Runner
    from velostream.model.changes import SourceOffsets

When = Literal["before", "after"]
_HALVES: tuple[When, When] = ("after", "before")
"""When each half of a change is computed: added rows after it, retracted rows before it."""
_WEIGHT = "__weight"


@dataclass(frozen=True)
class Restriction:
    """Only rows whose `columns` equal one of `keys`, column by column; null equals null.

    A column that is given twice is kept once, with the keys that have the same value both times.
    """

    columns: tuple[str, ...]
    keys: pa.Table

    def __post_init__(self) -> None:
        places: dict[str, int] = {}
        keys = self.keys
        for place, name in enumerate(self.columns):
            first = places.setdefault(name, place)
            if first != place:
                keys = keys.filter(pa.array(_alike(keys, first, place), pa.bool_()))
        if len(places) < len(self.columns):
            object.__setattr__(self, "columns", tuple(places))
            object.__setattr__(self, "keys", keys.select(list(places.values())))


@dataclass(frozen=True)
class Delta:
    """Net changes: rows added and rows retracted, none of them in both."""

    came: pa.Table
    went: pa.Table

    def __bool__(self) -> bool:
        return bool(self.came.num_rows or self.went.num_rows)


class Evaluation:
    """Evaluates the nodes of one job between `start` (None: empty inputs) and `end`."""

    def __init__(
        self,
        runner: Runner,
        inputs: Inputs,
        start: SourceOffsets | None,
        end: SourceOffsets,
        tolerance: Tolerance | None = None,
    ) -> None:
        self._tolerance = tolerance
        self.runner = runner
        self._spark = runner.spark
        self._inputs = inputs
        self._start = start
        self._end = end
        self._deltas: dict[int, Delta] = {}
        self._inputs_read: dict[str, Delta] = {}
        self.rows_read = 0
        """The number of rows read from tables and their logs."""

    # --- what changed -------------------------------------------------------------------------------------

    def halves(self, node: Node) -> tuple[DataFrame, DataFrame]:
        """Frames of added rows and of retracted rows; the same row may be in both."""
        if isinstance(node, Scan):
            delta = self.delta(node)
            return arrow_frame(self._spark, delta.came), arrow_frame(self._spark, delta.went)
        if isinstance(node, Keyed):
            return self._keyed_halves(node)
        pairs = [self.halves(child) for child in node.below]
        came, went = (self.run(node, [p[h] for p in pairs], when) for h, when in enumerate(_HALVES))
        return came, went

    def delta(self, node: Node) -> Delta:
        """Added and retracted rows, collected to the driver and netted. Computed once per node."""
        known = self._deltas.get(id(node))
        if known is None:
            known = self._scanned(node) if isinstance(node, Scan) else self._brought(node)
            self._deltas[id(node)] = known
        return known

    def _brought(self, node: Node) -> Delta:
        if not any(self.changed(scan) for scan in _scans(node)):
            nothing = self.runner.rows(self._empty(node))
            return Delta(nothing, nothing)
        came, went = self.halves(node)
        # One Spark job for both halves, instead of two.
        rows = self.runner.rows(
            came.selectExpr("*", f"1 AS {_WEIGHT}").unionAll(went.selectExpr("*", f"-1 AS {_WEIGHT}"))
        )
        plus = pc.greater(rows.column(_WEIGHT), 0)
        rows = rows.drop_columns([_WEIGHT])
        return Delta(*net(rows.filter(plus), rows.filter(pc.invert(plus))))

    def _empty(self, node: Node) -> DataFrame:
        if isinstance(node, Scan):
            return empty_frame(self._spark, self._inputs.schema(node.relation, node.columns))
        return self.run(node, [self._empty(child) for child in node.below])

    def changes(self, node: Node) -> int:
        """The number of rows added to, or retracted from, the inputs."""
        deltas = {scan.relation: self.delta(scan) for scan in _scans(node)}
        return sum(delta.came.num_rows + delta.went.num_rows for delta in deltas.values())

    def changed(self, scan: Scan) -> bool:
        """Whether the input of the scan changed at all."""
        return bool(self.delta(scan))

    def _scanned(self, scan: Scan) -> Delta:
        known = self._inputs_read.get(scan.relation)
        if known is None:
            start = self._start.get(scan.relation) if self._start else None
            came, went = self._inputs.arrow_changes(scan.relation, start, self._end[scan.relation])
            known = Delta(*net(came, went))
            self.rows_read += came.num_rows + went.num_rows
            self._inputs_read[scan.relation] = known
        return Delta(known.came.select(scan.columns), known.went.select(scan.columns))

    def _keyed_halves(self, node: Keyed) -> tuple[DataFrame, DataFrame]:
        deltas = [self.delta(side.node) for side in node.sides]
        if node.word == INNER:
            return self._joined_halves(node, deltas)
        # A change on any side affects all rows of its key on every side: they are computed before and after
        # the change, and the caller subtracts the one from the other.
        touched = distinct(
            [
                keys_of(rows, side)
                for side, delta in zip(node.sides, deltas, strict=True)
                for rows in (delta.came, delta.went)
            ]
        )
        touched = split_nulls(touched, node.nulls_meet)
        frames = []
        for when in _HALVES:
            inputs = []
            for side, delta in zip(node.sides, deltas, strict=True):
                # Rows with a null key match nothing, so their keys are not looked up (all nulls would be
                # "affected"): those in the change itself are enough, as they depend on no other row.
                alone = with_nulls(delta.came if when == "after" else delta.went, side.keys, node.nulls_meet)
                rows = self.frame(side.node, when, Restriction(side.keys, touched))
                inputs.append(rows.unionAll(arrow_frame(self._spark, alone)) if alone.num_rows else rows)
            frames.append(self.run(node, inputs, when))
        return frames[0], frames[1]

    def _joined_halves(self, node: Keyed, deltas: Sequence[Delta]) -> tuple[DataFrame, DataFrame]:
        """Inner join: L₁⋈R₁ - L₀⋈R₀ = dL⋈R₁ + L₀⋈dR, where d is the change, 0 is before and 1 is after.

        Rows that are not in a change are never computed, however many share a key with one. Both terms need
        the same rows to be exact: left changes meet the right side after, right changes the left side before.
        """
        parts: tuple[list[DataFrame], list[DataFrame]] = [], []
        whens: tuple[When, When] = ("before", "after")
        for number, (side, delta) in enumerate(zip(node.sides, deltas, strict=True)):
            if not delta:
                continue
            keys = distinct([keys_of(rows, side) for rows in (delta.came, delta.went)])
            other = node.sides[1 - number]
            only = Restriction(other.keys, split_nulls(keys, node.nulls_meet))
            others = self.frame(other.node, whens[1 - number], only)
            for half, rows in zip(parts, (delta.came, delta.went), strict=True):
                if rows.num_rows:
                    mine = arrow_frame(self._spark, rows)
                    half.append(self.run(node, [others, mine] if number else [mine, others]))
        came, went = (reduce(_union, half) if half else self._empty(node) for half in parts)
        return came, went

    # --- rows by key --------------------------------------------------------------------------------------

    def frame(self, node: Node, when: When, only: Restriction | None) -> DataFrame:
        """Rows of a node before or after the change: all, or exactly those of the restriction."""
        if isinstance(node, Scan):
            native = self._inputs.native(node.relation, self._end[node.relation]) if only is None else None
            if native is not None:
                return self._native(node, when, native.select(*map(quote, node.columns)))
            return arrow_frame(self._spark, self._looked_up(node, when, only))
        if isinstance(node, Each):
            return self._each(node, when, only)
        if isinstance(node, Both):
            parts = [
                self.frame(child, when, only and _by_position(only, node, child)) for child in node.children
            ]
            return self.run(node, parts, when)
        if isinstance(node, Keyed):
            return self._keyed(node, when, only)
        raise InternalError(f"no way to read a {type(node).__name__}")

    def table(self, node: Node, only: Restriction | None) -> pa.Table:
        """Rows of a node after the change, collected to the driver."""
        if isinstance(node, Scan):
            return self._looked_up(node, "after", only)
        return self.runner.rows(self.frame(node, "after", only))

    def _looked_up(self, scan: Scan, when: When, only: Restriction | None) -> pa.Table:
        end = self._end[scan.relation]
        if only is None:
            rows = self._inputs.arrow_snapshot(scan.relation, end).select(scan.columns)
        else:
            rows = self._inputs.arrow_where(scan.relation, end, only.columns, only.keys).select(scan.columns)
        self.rows_read += rows.num_rows
        if when == "after":
            return rows
        # The table only has its current rows; those before the change are these, without the rows added and
        # with the rows retracted. So no old version has to be kept.
        delta = self.delta(scan)
        if only is None:
            return before(rows, delta.came, delta.went)
        came, went = (among(each, only.columns, only.keys) for each in (delta.came, delta.went))
        return before(rows, came, went)

    def _native(self, scan: Scan, when: When, now: DataFrame) -> DataFrame:
        if when == "after":
            return now
        delta = self.delta(scan)
        came, went = arrow_frame(self._spark, delta.came), arrow_frame(self._spark, delta.went)
        return now.exceptAll(came).unionAll(went)

    def _each(self, node: Each, when: When, only: Restriction | None) -> DataFrame:
        if only is None:
            return self.run(node, [self.frame(node.child, when, None)], when)
        # The restriction is pushed down for the columns that pass unchanged; if it has others, the result is
        # a superset and is filtered.
        known = [index for index, name in enumerate(only.columns) if name in node.origin]
        pushed = None
        if known:
            columns = tuple(node.origin[only.columns[index]] for index in known)
            pushed = Restriction(columns, distinct([only.keys.select(known)]))
        rows = self.run(node, [self.frame(node.child, when, pushed)], when)
        return rows if len(known) == len(only.columns) else self._exactly(rows, only)

    def _keyed(self, node: Keyed, when: When, only: Restriction | None) -> DataFrame:
        if only is None:
            return self.run(node, [self.frame(child, when, None) for child in node.below], when)
        keys = self._keys_of(node, when, only)
        if keys is None:
            return self._exactly(self.run(node, [self.frame(c, when, None) for c in node.below], when), only)
        inputs = [self.frame(side.node, when, Restriction(side.keys, keys)) for side in node.sides]
        return self._exactly(self.run(node, inputs, when), only)

    def _keys_of(self, node: Keyed, when: When, only: Restriction) -> pa.Table | None:
        """The keys whose rows contain everything that the restriction selects; None when unknown."""
        for number, side in enumerate(node.sides):
            known = [
                index for index, name in enumerate(only.columns) if node.origin.get(name, (-1,))[0] == number
            ]
            wanted = only.keys.select(known)
            # A null may come from an outer join without a match,
            # whose row no lookup of nulls on this side would find.
            if not known or (side.extended and any(column.null_count for column in wanted.columns)):
                continue
            columns = tuple(node.origin[only.columns[index]][1] for index in known)
            if sorted(columns) == sorted(side.keys):
                order = [known[columns.index(name)] for name in side.keys]
                return distinct([only.keys.select(order)])
            rows = self.runner.rows(self.frame(side.node, when, Restriction(columns, distinct([wanted]))))
            return distinct([keys_of(rows, side)])
        return None

    def _exactly(self, rows: DataFrame, only: Restriction) -> DataFrame:
        names = [f"__k{number}" for number in range(len(only.columns))]
        keys = arrow_frame(self._spark, only.keys.rename_columns(names))
        same = reduce(
            lambda one, other: one & other,
            [rows[quote(c)].eqNullSafe(keys[k]) for c, k in zip(only.columns, names, strict=True)],
        )
        return rows.join(keys, same, "left_semi")

    # --- Spark --------------------------------------------------------------------------------------------

    def run(self, node: Node, inputs: Sequence[DataFrame], when: When = "after") -> DataFrame:
        """The node's SQL over frames of its children, before or after the change."""
        if self._tolerance is not None and isinstance(node, Each):
            inputs = [self._tolerance.computable(node, inputs[0], when)]
        elif self._tolerance is not None and isinstance(node, Keyed) and node.word != INNER:
            # An inner join compares plain columns only, which cannot fail.
            inputs = self._tolerance.computable_keys(node, inputs, when)
        assert isinstance(node, Each | Both | Keyed)
        views = {child.view: frame for child, frame in zip(node.below, inputs, strict=True)}
        return self.runner.frame(node.sql, views)

    def same_types(self, side: Side, kinds: Sequence[pa.DataType]) -> bool:
        """Whether the key columns of a side have these types; integers of any width count as equal."""
        given = self.runner.rows(self._empty(side.node).select(*map(quote, side.keys))).schema.types
        return all(
            one == other or (pa.types.is_integer(one) and pa.types.is_integer(other))
            for one, other in zip(given, kinds, strict=True)
        )


def keys_of(rows: pa.Table, side: Side) -> pa.Table:
    """The keys of rows of one side."""
    # A column may be in the key twice, hence by position and with names of our own.
    return pa.table([rows.column(name) for name in side.keys], [f"k{n}" for n in range(len(side.keys))])


def _alike(keys: pa.Table, one: int, other: int) -> list[bool]:
    """For each key whether two of its columns are equal, null being equal to null."""
    return [a == b for a, b in zip(codes(keys.select([one])), codes(keys.select([other])), strict=True)]


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionAll(other)


def _by_position(only: Restriction, node: Node, child: Node) -> Restriction:
    columns = tuple(child.columns[node.columns.index(name)] for name in only.columns)
    return Restriction(columns, only.keys)


def _scans(node: Node) -> list[Scan]:
    from velostream.plan.derived.plan import scans

    return scans(node)
