"""A table, wherever its rows are stored: `serving/memory` and `engine/delta` implement it side by side."""

from __future__ import annotations

from velostream.serving.table.by_hand import ByHand


class Table(ByHand):
    """Rows that one writer changes commit by commit, while any number of threads read whole versions.

    For readers see `ReadableTable`, for the job that fills it `WritableTable`, for changes by hand `ByHand`.
    """
