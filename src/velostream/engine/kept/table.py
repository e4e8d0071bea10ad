"""State beside a job: rows that are kept because results are still computed from them.

Each row is due at certain times: of the wall clock (`clock_rows`), or of the watermark (`stream_rows`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from velostream.engine.outputs.outputs import TableOutput
from velostream.engine.rows.due import DueRows

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from velostream.model.changes import Commit
    from velostream.serving.contract.table import Table


class KeptTable(TableOutput, ABC):
    """State store of rows that appear, close, are retracted or forgotten at times that they record."""

    def __init__(self, table: Table, moments: Iterable[str]) -> None:
        """`moments` are the columns that may hold such a time; a table has some of them."""
        super().__init__(table)
        self._due = {name: DueRows(table, name) for name in moments if name in table.spec.schema.names}
        self._remember(table.version_object.physical())

    @abstractmethod
    def _remember(self, rows: pa.Table) -> None:
        """Schedule the due times of rows that were stored."""

    @property
    def next_due(self) -> int | None:
        """The wall-clock time at which the next row appears or is retracted; None when there is none."""
        return None

    @property
    def clock(self) -> int | None:
        """The wall-clock time up to which rows have aged; no commit may be earlier. None: they do not age."""
        return None

    @abstractmethod
    def due(self, at: int | None) -> bool:
        """Whether rows are due at the job's time `at`, so that a step is needed though no input has news."""

    def close_due(self, at: int | None) -> None:
        """Close rows that no later row can match, before the step reads new ones."""

    @abstractmethod
    def forget_due(self, at: int | None, settled: int | None) -> None:
        """Forget rows from which nothing is computed any more; nothing downstream is retracted.

        `at` is the job's time, `settled` the event time before which no result is computed again.
        """

    def age(self, commit: Commit) -> None:
        """Age to the commit's time without new rows."""
