"""The contract of sources: derive from `SourceContract`, and give it a world in which rows come.

The tests are the documentation: each name is a promise that the engine relies on.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from velostream.connectors.capabilities import (
    BadRecords,
    Counted,
    Ordered,
    Partitioned,
    Replayable,
    SparkReader,
)
from velostream.errors import SourceError, SourceMissingError
from velostream.model.columns import (
    BAD,
    ENTERED,
    OFFSET,
    PARTITION,
    POSITION,
    SYSTEM_TYPES,
    TOMBSTONE,
    WEIGHT,
    arrow_types,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from velostream.connectors.base import Source

Row = tuple[Any, ...]


class World(ABC):
    """One relation outside with the columns `id` BIGINT and `name` STRING, which may be NULL, and a job that
    reads it.
    """

    gaps: ClassVar[Mapping[str, str]] = {}
    """Tests that this kind of source cannot pass, each with its reason. A gap that closes is a failure."""

    @abstractmethod
    def open(self, *, resumed: bool = False, missing: bool = False) -> Source:
        """Open it as a job does; `missing`: one that is not there."""

    @abstractmethod
    def give(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Let rows come, and tell which came: what makes rows up makes as many of its own."""

    def retract(self, row: Row) -> None:
        """Take one of them away; only asked where the traits say that rows may go."""
        raise NotImplementedError

    def give_bad(self) -> bytes | None:
        """Let a record come that cannot be decoded, and give its bytes; None where there is no such thing."""
        return None

    def break_off(self) -> bool:
        """Let what comes from now on be impossible to read, such as of a table that is dropped; False where
        nothing can go wrong, or not without everything else.
        """
        return False


class SourceContract:
    """Every source passes these."""

    @pytest.fixture
    def world(self) -> World:
        raise NotImplementedError

    @pytest.fixture
    def session(self, velostream_spark: SparkSession) -> SparkSession:
        return velostream_spark

    @pytest.fixture(autouse=True)
    def declared_gap(self, request: pytest.FixtureRequest, world: World) -> None:
        reason = world.gaps.get(request.node.originalname)
        if reason is not None:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

    def test_columns_are_told_and_stay(self, world: World) -> None:
        world.give([(1, "a")])
        source = world.open()
        source.check()
        columns = source.discover()
        assert columns.names[:2] == ["id", "name"]
        assert not [name for name in columns.names if name in SYSTEM_TYPES]
        assert source.discover().equals(columns)
        source.close()

    def test_everything_then_what_is_new(self, session: SparkSession, world: World) -> None:
        came = world.give([(1, "a"), (2, "b")])
        source = world.open()
        first = settled(source, None)
        assert rows(session, source, None, first) == Counter(came)
        more = world.give([(3, "c")])
        second = settled(source, first)
        assert second != first
        assert rows(session, source, first, second) == Counter(more)
        assert rows(session, source, None, second) == Counter([*came, *more])
        source.close()

    def test_one_without_a_row_waits_for_its_first(self, session: SparkSession, world: World) -> None:
        source = world.open()
        first: Any = None
        try:
            source.discover()
            first = settled(source, None)
            assert not rows(session, source, None, first)
        except SourceMissingError:
            # Where rows tell the columns, there is nothing yet to read them from.
            assert first is None
        came = world.give([(1, "a")])
        assert source.discover().names[:2] == ["id", "name"]
        second = settled(source, first)
        assert rows(session, source, first, second) == rows(session, source, None, second) == Counter(came)
        source.close()

    def test_null_and_any_text_come_as_they_are(self, session: SparkSession, world: World) -> None:
        came = world.give([(1, None), (2, 'ä "b", c\t\\d')])
        source = world.open()
        first = settled(source, None)
        assert rows(session, source, None, first) == Counter(came)
        more = world.give([(3, None), (4, " e ")])
        second = settled(source, first)
        assert rows(session, source, first, second) == Counter(more)
        source.close()

    def test_nothing_new_is_the_same_position(self, world: World) -> None:
        world.give([(1, "a")])
        source = world.open()
        first = settled(source, None)
        assert source.latest(first) == first
        source.close()

    def test_positions_are_json(self, session: SparkSession, world: World) -> None:
        world.give([(1, "a")])
        source = world.open()
        first = settled(source, None)
        more = world.give([(2, "b")])
        second = settled(source, json.loads(json.dumps(first)))
        again = json.loads(json.dumps([first, second]))
        assert rows(session, source, *again) == Counter(more)
        source.close()

    def test_a_range_is_the_same_whenever_it_is_read(self, session: SparkSession, world: World) -> None:
        world.give([(1, "a"), (2, "b")])
        source = world.open()
        first = settled(source, None)
        more = world.give([(3, "c"), (4, "d")])
        second = settled(source, first)
        before = rows(session, source, first, second)
        world.give([(5, "e")])
        settled(source, second)
        assert rows(session, source, first, second) == before == Counter(more)
        source.close()

    def test_a_restart_goes_on_where_it_was(self, session: SparkSession, world: World) -> None:
        world.give([(1, "a")])
        source = world.open()
        first = settled(source, None)
        source.commit(first)
        source.close()
        more = world.give([(2, "b")])
        source = world.open(resumed=True)
        second = settled(source, first)
        assert rows(session, source, first, second) == Counter(more)
        source.close()

    def test_rows_go_only_where_the_traits_say_so(self, session: SparkSession, world: World) -> None:
        came = world.give([(1, "a"), (2, "b")])
        source = world.open()
        first = settled(source, None)
        if source.traits.only_grows:
            more = world.give([(1, "a")])
            second = settled(source, first)
            assert rows(session, source, first, second) == Counter(more)
        else:
            world.retract(came[0])
            second = settled(source, first)
            assert rows(session, source, first, second) == Counter({came[0]: -1})
            assert rows(session, source, None, second) == Counter([came[1]])
        source.close()

    def test_rows_have_system_columns(self, session: SparkSession, world: World) -> None:
        world.give([(1, "a"), (2, "b")])
        source = world.open()
        end = settled(source, None)
        found = table(session, source, None, end, ["id", ENTERED, PARTITION, OFFSET])
        assert found.column(PARTITION).null_count == found.column(OFFSET).null_count == 0
        assert pa.types.is_timestamp(found.schema.field(ENTERED).type)
        places = list(zip(found[PARTITION].to_pylist(), found[OFFSET].to_pylist(), strict=True))
        assert len(set(places)) == 2
        source.close()

    def test_positions_of_rows_tell_them_apart_and_order_them(
        self, session: SparkSession, world: World
    ) -> None:
        source = world.open()
        if not source.traits.positioned:
            source.close()
            return
        came = world.give([(1, "a"), (1, "a")])
        first = settled(source, None)
        more = world.give([(2, "b")])
        second = settled(source, first)
        found = table(session, source, None, second, ["id", POSITION], careful=True)
        places = dict(zip(found[POSITION].to_pylist(), found["id"].to_pylist(), strict=True))
        assert sorted(places.values()) == sorted(id_ for id_, _ in [*came, *more])
        last = Ordered.of(source).order(pa.chunked_array([sorted(places)])).to_pylist()
        assert places[sorted(places)[last.index(max(last))]] == more[0][0]
        again = table(session, source, None, second, ["id", POSITION], careful=True)
        assert sorted(again[POSITION].to_pylist()) == sorted(places)
        source.close()

    def test_it_counts_what_it_hands_over(self, session: SparkSession, world: World) -> None:
        world.give([(1, "a"), (2, "b"), (3, "c")])
        source = world.open()
        end = settled(source, None)
        counted = Counted.of(source)
        assert counted.count(None, end) in (3, None)
        assert sum(counted.counts(None, end).values()) in (3, 0)
        assert all(lag == 0 for lag in counted.lags(end).values())
        source.close()

    def test_partitions_are_conditions_on_rows(self, session: SparkSession, world: World) -> None:
        world.give([(1, "a"), (2, "b")])
        source = world.open()
        end = settled(source, None)
        told = Partitioned.of(source).partitions(None, end)
        found = table(session, source, None, end, ["id", *source.traits.partition_columns])
        frame = session.createDataFrame(found)
        if told is not None:
            assert sum(frame.where(condition).count() for condition in told.values()) == 2
        names = {row[0] for row in frame.selectExpr(source.traits.partition_sql).collect()}
        assert names
        assert told is None or names <= set(told)
        source.close()

    def test_a_record_that_cannot_be_decoded_is_told(self, session: SparkSession, world: World) -> None:
        world.give([(1, "a")])
        source = world.open()
        first = settled(source, None)
        raw = world.give_bad()
        if raw is None:
            source.close()
            return
        more = world.give([(2, "b")])
        second = settled(source, first)
        assert rows(session, source, first, second, careful=True) == Counter(more)
        (bad,) = BadRecords.of(source).bad_rows(first, second)
        assert bad.raw == raw
        assert bad.reason
        assert bad.partition
        assert int(bad.offset) >= 0
        source.close()

    def test_what_was_loaded_stays_readable_when_no_more_can_be_read(
        self, session: SparkSession, world: World
    ) -> None:
        came = world.give([(1, "a"), (2, "b")])
        source = world.open()
        source.discover()
        first = settled(source, None)
        if world.break_off():
            assert _fails(source, first)
        assert rows(session, source, None, first) == Counter(came)
        source.close()

    def test_single_records_are_read_again(self, session: SparkSession, world: World) -> None:
        world.give([(1, "a"), (2, "b"), (3, "c")])
        source = world.open()
        if not source.traits.positioned:
            source.close()
            return
        end = settled(source, None)
        found = table(session, source, None, end, ["id", POSITION], careful=True)
        place, id_ = sorted(zip(found[POSITION].to_pylist(), found["id"].to_pylist(), strict=True))[1]
        frame = Replayable.of(source).again(session, [place], end, ["id", POSITION])
        if frame is not None:
            assert [row.id for row in frame.collect()] == [id_]
        assert set(BadRecords.of(source).located([place], end)) <= {place}
        source.close()

    def test_a_missing_one_is_named(self, world: World) -> None:
        source = world.open(missing=True)
        with pytest.raises(SourceMissingError) as raised:
            _looked_at(source)
        assert raised.value.hint or raised.value.detail
        source.close()

    def test_it_is_well_and_can_be_closed_twice(self, world: World) -> None:
        world.give([(1, "a")])
        source = world.open()
        settled(source, None)
        assert source.health()[0] == "healthy"
        source.close()
        try:
            source.close()
        except SourceError:
            pytest.fail("closing twice is no error")


def _looked_at(source: Source) -> None:
    source.check()
    source.discover()


def _fails(source: Source, after: Any) -> bool:
    """Whether it says that it cannot go on."""
    deadline = time.monotonic() + 30
    try:
        while time.monotonic() < deadline:
            source.latest(after)
    except SourceError:
        return True
    return False


def settled(source: Source, after: Any) -> Any:
    """The position at which everything that was given is there."""
    end = source.latest(after)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        newer = source.latest(end)
        if newer == end and source.settled() and source.latest(end) == end:
            return end
        end = newer
    raise AssertionError("it does not come to rest")


def table(
    session: SparkSession,
    source: Source,
    start: Any,
    end: Any,
    columns: Sequence[str],
    *,
    careful: bool = False,
) -> pa.Table:
    """The rows of a range, by whichever way the engine would read them."""
    reader = SparkReader.of(source)
    reader.session = session
    frame = reader.frame(session, start, end, list(columns), careful=careful)
    if frame is not None:
        found = frame.toArrow()
        if BAD in found.schema.names:
            good = [bad is None for bad in found[BAD].to_pylist()]
            found = found.filter(pa.array(good)).drop_columns([BAD])
        return found
    batches = []
    for partition, position in end.items():
        for batch in source.read(partition, start.get(partition) if start else None, position):
            if PARTITION not in batch.schema.names and PARTITION in columns:
                batch = batch.append_column(PARTITION, pa.array([partition] * batch.num_rows, pa.string()))
            if ENTERED not in batch.schema.names and ENTERED in columns:
                # When a row entered its source need not be known.
                batch = batch.append_column(ENTERED, pa.nulls(batch.num_rows, arrow_types()[ENTERED]))
            batches.append(batch)
    if not batches:
        return pa.table({name: pa.nulls(0) for name in columns})
    found = pa.Table.from_batches(batches)
    if TOMBSTONE in found.schema.names:
        found = found.filter(pc.invert(found[TOMBSTONE]))
    return found.select([*columns, *([WEIGHT] if WEIGHT in found.schema.names else [])])


def rows(
    session: SparkSession, source: Source, start: Any, end: Any, *, careful: bool = False
) -> Counter[Row]:
    """How often each row came, less how often it went."""
    found = table(session, source, start, end, ["id", "name"], careful=careful)
    weights = found[WEIGHT].to_pylist() if WEIGHT in found.schema.names else [1] * found.num_rows
    counted: Counter[Row] = Counter()
    for id_, name, weight in zip(found["id"].to_pylist(), found["name"].to_pylist(), weights, strict=True):
        counted[id_, name] += weight
    return Counter({row: weight for row, weight in counted.items() if weight})
