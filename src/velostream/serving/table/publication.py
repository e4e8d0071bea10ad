"""The common part of all storages: a table publishes its newest version, from which readers read."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from threading import Condition
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from velostream.errors import UnknownNameError, did_you_mean
from velostream.model.lifetime import Ended, Lifetime
from velostream.serving.columns.dictionaries import plain
from velostream.serving.columns.values import to_python
from velostream.serving.contract.table import Table
from velostream.serving.table.record import Row, row_class
from velostream.serving.table.stats import TableStats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from velostream.model.changes import Commit
    from velostream.model.tables import TableSpec
    from velostream.serving.contract.version import TableVersion
    from velostream.serving.table.stats import MemoryUse
    from velostream.serving.table.subscription import Changelog

BATCH_ROWS = 65_536
"""The most rows in a batch of `stream`."""


class PublishedTable(Table):
    """A table whose newest version is one immutable object, published by one reference store."""

    _version: TableVersion

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._published = Condition()
        self._health: tuple[str, str | None] = ("healthy", None)
        self.lifetime = Lifetime()

    def _publish(self, version: TableVersion) -> None:
        """Make this the version that readers see, and wake subscribers."""
        self._version = version
        self._wake()

    def _end(self, message: str, hint: str | None) -> None:
        """Release the rows; from now on every use raises ClosedError with this message.

        Versions that callers hold stay readable.
        """
        self.lifetime.end(message, hint=hint)
        self._version = cast("TableVersion", Ended(self.lifetime))
        self._wake()

    def _wake(self) -> None:
        with self._published:
            self._published.notify_all()

    # --- what it is ---------------------------------------------------------------------------------

    @property
    def spec(self) -> TableSpec:
        """Name, columns, key and options."""
        return self._version.spec

    @property
    def version(self) -> int:
        """Number of the newest version."""
        return self._version.number

    @property
    def last_commit(self) -> Commit | None:
        """The newest commit."""
        return self._version.commit

    @property
    def health(self) -> tuple[str, str | None]:
        """The health of the table's source, and the reason."""
        self.lifetime.check()
        return self._health

    def set_health(self, health: str, reason: str | None = None) -> None:
        """Set the health of the table's source."""
        self._health = (health, reason)

    def stats(self) -> TableStats:
        """The current statistics of the table."""
        version, memory = self._version, self._memory()
        queries, hits = self._asked()
        return TableStats(
            record_count=len(version),
            last_updated=version.commit.at if version.commit else None,
            datasource_type=version.spec.datasource_type,
            health=self._health[0],
            health_reason=self._health[1],
            version=version.number,
            queries=queries,
            cache_hits=hits,
            bytes=memory.total,
            memory=memory,
            disk_bytes=self._disk_bytes(),
        )

    @abstractmethod
    def _memory(self) -> MemoryUse:
        """The memory of this process that the table uses."""

    @abstractmethod
    def _asked(self) -> tuple[int, int]:
        """The number of queries so far, and of those that found their answer or plan in a cache."""

    @abstractmethod
    def _disk_bytes(self) -> int:
        """The table's size on disk."""

    # --- reading ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._version)

    def count(self, where: str | None = None) -> int:
        """How many rows there are for which the condition holds."""
        return len(self._version) if where is None else int(self.scalar("COUNT(*)", where))

    def fetch_where(self, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """The rows whose `columns` equal a row of `keys`."""
        return self._version.fetch_where(columns, keys)

    def snapshot(self) -> pa.Table:
        """All rows as Arrow."""
        return self._version.snapshot()

    def page(self, limit: int = 1000, offset: int = 0) -> list[Row]:
        """Up to `limit` rows after the first `offset`."""
        rows = self._version.slice(offset, limit)
        make = row_class(tuple(rows.schema.names))
        return [make(values) for values in zip(*(to_python(each) for each in rows.columns), strict=True)]

    def stream(self, where: str | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one version as record batches."""
        for batch in self._batches(where):
            yield from plain(pa.Table.from_batches([batch])).to_batches()

    def rows(self, where: str | None = None) -> Iterator[Row]:
        """The rows of one version, one by one."""
        for batch in self._batches(where):
            make = row_class(tuple(batch.schema.names))
            for values in zip(*(to_python(column) for column in batch.columns), strict=True):
                yield make(values)

    @abstractmethod
    def _batches(self, where: str | None) -> Iterator[pa.RecordBatch]:
        """The batches of `stream`, of at most `BATCH_ROWS` rows; repeated texts may be dictionary-encoded."""

    def _resolve(self, column: str) -> str:
        """The name of a column, which users may spell in another case."""
        names = self.spec.visible
        if column in names:
            return column
        folded = [name for name in names if name.casefold() == column.casefold()]
        if len(folded) != 1:
            raise UnknownNameError(
                f'table "{self.name}" has no column "{column}"', hint=did_you_mean(column, names)
            )
        return folded[0]

    @property
    def changelog(self) -> Changelog:
        """The changes, for subscriptions."""
        self.lifetime.check()
        return _PublishedChanges(lambda: self._version.number, self._changes_by_version, self._published)

    @abstractmethod
    def _changes_by_version(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        """The changes of each version after `after` up to `upto`; see `changes_between`."""

    def _now(self) -> datetime:
        return self._clock()


@dataclass(frozen=True)
class _PublishedChanges:
    """The changes of a table of this process."""

    newest: Callable[[], int]
    between: Callable[[int, int], Iterator[tuple[int, pa.Table]]]
    published: Condition

    def wait(self, seen: int, timeout: float | None, ended: Callable[[], bool]) -> bool:
        """Wait for a version beyond `seen`, or until `ended` holds; False when the timeout passed."""
        with self.published:
            return self.published.wait_for(lambda: ended() or self.newest() > seen, timeout)

    def wake(self) -> None:
        """Let waiting threads evaluate `ended` again."""
        with self.published:
            self.published.notify_all()
