"""Sources whose positions are row numbers: the base class then does all that has to do with positions."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.base import Source
from velostream.connectors.capabilities import BadRecords, Counted
from velostream.errors import SourceConfigError
from velostream.model.changes import Located
from velostream.model.columns import OFFSET, POSITION

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from velostream.model.changes import Offset

STEP_ROWS = 1_000_000
"""The most rows of one step where the statement has no `max.rows.per.batch`."""


class NumberedSource(Source, Counted, BadRecords):
    """A source of partitions whose rows are numbered from 0 and never change.

    Derive from it with three methods: `discover`, `newest` and `rows`. A step is as large as
    `max.rows.per.batch` allows, whatever has piled up; rows have `_offset` and `_position`, lag and rates are
    shown, and dead letters name the row.
    """

    asked: Collection[str] | None = None
    """The columns that are read, where only some are: positions are made only if they are among them."""
    _newest: Mapping[str, int] = {}
    _cut = False

    @abstractmethod
    def newest(self) -> Mapping[str, int]:
        """The partitions, and how many rows each of them has now."""

    @abstractmethod
    def rows(self, partition: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """The rows of a partition from number `first` up to, not including, `last`; the same ones forever.

        Records that cannot be decoded are left out and told in `bad_rows`. Batches then have a column
        `_offset`, the number of each row, since the rows that are there no longer tell it.
        """

    def latest(self, after: Offset | None) -> Offset:
        """See `Source`: as far as one step may go, shared fairly by the partitions."""
        self._newest = self.newest()
        have = {name: _number(name, (after or {}).get(name, 0)) for name in self._newest}
        # What a server that was restored from a backup no longer has is not read again.
        behind = {name: max(0, self._newest[name] - number) for name, number in have.items()}
        steps = _shared(behind, self.most_rows or STEP_ROWS)
        self._cut = sum(steps.values()) < sum(behind.values())
        return {**(after or {}), **{name: number + steps[name] for name, number in have.items()}}

    def settled(self) -> bool:
        """See `Source`."""
        return not self._cut

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        number = int(start or 0)
        if number >= int(end):
            return
        wanted = (OFFSET, POSITION) if self.asked is None else self.asked
        for batch in self.rows(partition, number, int(end)):
            if OFFSET in batch.schema.names:
                numbers = batch.column(OFFSET)
            elif OFFSET in wanted or POSITION in wanted:
                numbers = pa.array(np.arange(number, number + batch.num_rows))
                batch = batch.append_column(OFFSET, numbers)
            if POSITION in wanted:
                batch = batch.append_column(POSITION, _positions(numbers, partition))
            number += batch.num_rows
            yield batch

    def count(self, start: Offset | None, end: Offset) -> int:
        """See `Counted`."""
        return sum(self.counts(start, end).values())

    def counts(self, start: Offset | None, end: Offset) -> Mapping[str, int]:
        """See `Counted`."""
        return {name: int(number) - int((start or {}).get(name, 0)) for name, number in end.items()}

    def lags(self, offset: Offset) -> Mapping[str, int]:
        """See `Counted`."""
        return {name: max(0, number - int(offset.get(name, 0))) for name, number in self._newest.items()}

    def located(self, positions: Collection[str], end: Offset) -> Mapping[str, Located]:
        """See `BadRecords`."""
        parted = {position: position.partition(" ") for position in positions}
        return {position: Located(name, str(int(number))) for position, (number, _, name) in parted.items()}


def _number(partition: str, at: Any) -> int:
    if not isinstance(at, int) or at < 0:
        raise SourceConfigError(
            f'"{at}" is no position of "{partition}"', hint="positions are numbers of rows, from 0 on"
        )
    return at


def _positions(numbers: pa.Array, partition: str) -> pa.Array:
    """Texts that sort by the rows' numbers."""
    padded = pc.utf8_lpad(numbers.cast(pa.string()), 20, "0")
    return pc.binary_join_element_wise(padded, partition, " ")


def _shared(behind: Mapping[str, int], most: int) -> dict[str, int]:
    """How many rows of each partition fit into a step: none gets more than its share while others wait."""
    steps: dict[str, int] = {}
    left = most
    for place, (name, rows) in enumerate(sorted(behind.items(), key=lambda item: item[1])):
        share = max(1, left // (len(behind) - place)) if left else 0
        steps[name] = min(rows, share)
        left -= steps[name]
    return steps
