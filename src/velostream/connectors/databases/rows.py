"""Rows of a change log: the user's columns, and the system columns that tell what happened to the row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from velostream.connectors.databases.change_log import SetAside
from velostream.connectors.databases.text_rows import key_text
from velostream.model.columns import ENTERED, KEY, TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from velostream.connectors.databases.text_rows import Decoded

UTC_TIME = pa.timestamp("us", tz="UTC")
SYSTEM_COLUMNS = (KEY, TOMBSTONE, ENTERED)
"""The columns of the log beside the user's."""


def log_rows(
    decoded: Decoded,
    key: Sequence[str],
    deleted: npt.NDArray[np.bool_],
    entered: pa.Array,
    first: int,
    keys: pa.Array | None = None,
) -> tuple[pa.Table, list[SetAside]]:
    """Rows of the log that follow row `first`, and those that do not fit their columns.

    A row that does not fit is the deletion of its key: what the table had before is not true any more.
    `keys` identify rows that have no key.
    """
    columns, bad = decoded.columns, decoded.bad
    if bad:
        deleted = deleted.copy()
        deleted[list(bad)] = True
    aside = [SetAside(first + row + 1, why.reason, why.raw) for row, why in bad.items()]
    if keys is None:
        keys = key_text([columns[name] for name in key]) if key else pa.nulls(len(deleted), pa.string())
    return pa.table({**columns, KEY: keys, TOMBSTONE: pa.array(deleted), ENTERED: entered}), aside


def no_rows(schema: pa.Schema) -> pa.Table:
    """A log's rows without any."""
    plain = {field.name: pa.nulls(0, field.type) for field in schema}
    system = {
        KEY: pa.nulls(0, pa.string()),
        TOMBSTONE: pa.nulls(0, pa.bool_()),
        ENTERED: pa.nulls(0, UTC_TIME),
    }
    return pa.table({**plain, **system})


def same_moment(micros: int, count: int) -> pa.Array:
    """One moment, as many times as there are rows."""
    return pa.array(np.full(count, micros, dtype=np.int64)).cast(UTC_TIME)
