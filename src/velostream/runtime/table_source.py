"""A table as a source for other jobs: its snapshot, then its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from velostream.connectors.base import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from velostream.model.changes import Offset
    from velostream.serving.table import Table
    from velostream.serving.version import TableVersion

PARTITION = "version"


class TableSource(Source):
    """Changes of a table between two of its versions.

    A snapshot is only there for versions that this process announced and has not committed past; after a
    restart the job announces the table's current version, so it never asks for an older one.
    """

    only_grows = False
    positioned = False

    def __init__(self, table: Table, reader: str) -> None:
        self._table = table
        self._reader = reader
        self._announced: dict[int, TableVersion] = {}
        self.key = tuple(name for name in table.spec.key if name in table.spec.visible)

    def discover(self) -> pa.Schema:
        """The columns that readers see."""
        return self._table.spec.visible_schema

    def latest(self, after: Offset | None) -> Offset:
        """The table's current version, kept until it is committed."""
        version = self._table.version_object
        if after is not None and after.get(PARTITION) == version.number:
            return after
        if after is None:
            self._table.register_reader(self._reader, version.number)
        self._announced[version.number] = version
        return {PARTITION: version.number}

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """The snapshot, or the net changes with weights."""
        if start is None:
            version = self._announced.get(int(end), self._table.version_object)
            yield from version.snapshot().to_batches()
        else:
            yield from self._table.changes_between(int(start), int(end)).to_batches()

    def commit(self, offset: Offset) -> None:
        """Older versions and their log are not needed any more."""
        done = int(offset[PARTITION])
        self._table.register_reader(self._reader, done)
        for number in [n for n in self._announced if n < done]:
            del self._announced[number]
