"""Bad rows with their records at the source: position and bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from velostream.connectors.capabilities import BadRecords
from velostream.engine.bad_rows.search import Culprit
from velostream.model.changes import BadRow
from velostream.model.columns import POSITION_KEPT, ROW_AS_JSON

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from velostream.engine.inputs.inputs import Input
    from velostream.model.changes import Offset

Row = tuple[str, str]
"""The position of a row, and its columns as JSON."""


def located(item: Input, culprits: Iterable[Culprit], end: Offset) -> list[BadRow]:
    """Rows that cannot be computed, with position and bytes of their records at the source."""
    found = {culprit.position: culprit for culprit in culprits}
    places = BadRecords.of(item.source).located(found.keys(), end)
    rows = []
    for position, culprit in found.items():
        row, place = replace(culprit.row, position=position, input=item.id), places.get(position)
        if place is not None:
            raw = row.raw if place.raw is None else place.raw
            where = {"partition": place.partition, "offset": place.offset, "event_time": place.event_time}
            row = replace(row, raw=raw, **where)  # type: ignore[arg-type]
        rows.append(row)
    return rows


def rows_found(found: pa.Table) -> list[Row]:
    """The rows of a query for their positions and what they are as JSON."""
    columns = (found.column(name).to_pylist() for name in (POSITION_KEPT, ROW_AS_JSON))
    return [(position or "", row or "") for position, row in zip(*columns, strict=True)]


def refused(item: Input, reason: str, rows: Iterable[Row], end: Offset) -> list[BadRow]:
    """Rows of an input up to `end` that are late, or have no time."""
    where = item.description
    culprits = [
        Culprit(position, BadRow(reason, where, where, position, row.encode())) for position, row in rows
    ]
    return located(item, culprits, end) if item.source.traits.positioned else [each.row for each in culprits]
