"""The contract of sinks: derive from `SinkContract`, and give it a place outside that can be looked at."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from velostream.connectors.base import Delivery
from velostream.model.columns import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from velostream.connectors.base import Sink

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
Row = tuple[int, str]


class Place(ABC):
    """Somewhere outside that a job writes rows of `id` and `name` to."""

    @abstractmethod
    def open(self, *, resumed: bool = False) -> Sink:
        """Open it as a job does."""

    @abstractmethod
    def there(self) -> Counter[Row]:
        """The rows that a reader finds."""


class SinkContract:
    """Every sink passes these."""

    @pytest.fixture
    def place(self) -> Place:
        raise NotImplementedError

    def test_rows_are_there_once_they_are_written(self, place: Place) -> None:
        sink = place.open()
        sink.recover(None)
        recorded = written(sink, 0, [(1, "a"), (2, "b")])
        sink.committed(recorded)
        sink.committed(written(sink, 1, [(3, "c")]))
        sink.close()
        assert place.there() == Counter([(1, "a"), (2, "b"), (3, "c")])

    def test_what_is_recorded_is_json(self, place: Place) -> None:
        sink = place.open()
        sink.recover(None)
        recorded = written(sink, 0, [(1, "a")])
        sink.close()
        sink = place.open(resumed=True)
        sink.recover(json.loads(json.dumps(recorded)))
        written(sink, 1, [(2, "b")])
        sink.close()
        assert place.there() == Counter([(1, "a"), (2, "b")])

    def test_nothing_can_be_written(self, place: Place) -> None:
        sink = place.open()
        sink.recover(None)
        recorded = written(sink, 0, [])
        sink.close()
        sink = place.open(resumed=True)
        sink.recover(recorded)
        written(sink, 1, [(1, "a")])
        sink.close()
        assert place.there() == Counter([(1, "a")])

    def test_a_crash_before_the_record_doubles_nothing(self, place: Place) -> None:
        sink = place.open()
        sink.recover(None)
        recorded = written(sink, 0, [(1, "a")])
        sink.committed(recorded)
        lost, intended = _written(sink, 1, [(2, "b"), (3, "c")])
        del lost  # The process ends before it is recorded.
        sink.close()
        again = place.open(resumed=True)
        again.recover(recorded)
        if intended is None or not again.settle(intended):
            written(again, 1, [(2, "b"), (3, "c")])
        again.close()
        found = place.there()
        assert set(found) == {(1, "a"), (2, "b"), (3, "c")}
        if sink.delivery is Delivery.EXACTLY_ONCE:
            assert found == Counter([(1, "a"), (2, "b"), (3, "c")])

    def test_recovering_twice_changes_nothing(self, place: Place) -> None:
        sink = place.open()
        sink.recover(None)
        recorded = written(sink, 0, [(1, "a")])
        sink.close()
        for _ in range(2):
            sink = place.open(resumed=True)
            sink.recover(recorded)
            sink.close()
        assert place.there() == Counter([(1, "a")])

    def test_what_is_tried_out_is_not_written(self, place: Place) -> None:
        sink = place.open()
        sink.recover(None)
        recorded = written(sink, 0, [(1, "a")])
        sink.try_out(batch([(2, "b")]))
        sink.committed(recorded)
        sink.close()
        assert place.there() == Counter([(1, "a")])

    def test_rows_that_go_are_taken_where_it_says_so(self, place: Place) -> None:
        sink = place.open()
        sink.recover(None)
        sink.committed(written(sink, 0, [(1, "a"), (2, "b")]))
        if sink.takes_deletes:
            rows = batch([(1, "a"), (3, "c")]).append_column(WEIGHT, pa.array([-1, 1], pa.int64()))
            sink.committed(sink.write(1, rows))
        sink.close()


def batch(rows: Sequence[Row]) -> pa.Table:
    return pa.table([[id_ for id_, _ in rows], [name for _, name in rows]], schema=COLUMNS)


def written(sink: Sink, number: int, rows: Sequence[Row]) -> Mapping[str, Any]:
    """One step, as a job does it: what its journal would record."""
    return _written(sink, number, rows)[0]


def _written(
    sink: Sink, number: int, rows: Sequence[Row]
) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    table = batch(rows)
    intended = sink.intend(number, table)
    return sink.write(number, table), intended
