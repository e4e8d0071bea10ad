"""The table of kept rows as a source, for the stage that computes the result from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.connectors.capabilities import Ordered
from velostream.engine.inputs.consistency import VERSION
from velostream.engine.inputs.tables import TableSource
from velostream.model.columns import POSITION

if TYPE_CHECKING:
    from collections.abc import Callable

    from velostream.model.changes import Offset
    from velostream.serving.contract.table import Table


class KeptSource(TableSource, Ordered):
    """The table of kept rows as an input of the statement, with the key and order of the original source."""

    def __init__(
        self,
        table: Table,
        reader: str,
        key: tuple[str, ...],
        order: Callable[[pa.ChunkedArray], pa.Array | pa.ChunkedArray] = lambda positions: positions,
        *,
        forgotten: bool = True,
    ) -> None:
        super().__init__(table, reader, forgotten=forgotten)
        self.key = key if set(key) <= set(table.spec.visible) else ()
        self._order = order

    def order(self, positions: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        """See `Ordered`: by the positions that the rows had at their source."""
        return self._order(positions)

    def only_forgot(self, after: Offset, upto: Offset) -> bool:
        """Whether the commits between two positions only forgot rows, so that no step is needed."""
        return not self._forgotten and self._table.only_forgot(int(after[VERSION]), int(upto[VERSION]))

    def discover(self) -> pa.Schema:
        """The columns of the original source, without the position by which rows are ordered."""
        schema = super().discover()
        return pa.schema([each for each in schema if each.name != POSITION])
