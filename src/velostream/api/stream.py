"""A followed SELECT, as users hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    import pyarrow as pa

    from velostream.api.access import SelectAccess


class Stream:
    """`with db.stream("SELECT …") as live: for added, removed in live: …`

    Each pair has the rows that were added and those that were retracted, as Arrow tables; `removed` is None
    where nothing can be retracted. Leaving the `with` ends it.
    """

    def __init__(self, select: SelectAccess) -> None:
        self._select = select
        self._entered = False

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of its rows; None before it was entered."""
        return self._select.schema

    def __enter__(self) -> Stream:
        self._select.__enter__()
        self._entered = True
        return self

    def __iter__(self) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        if not self._entered:
            raise ClosedError("the SELECT has not begun", hint="with db.stream(…) as live: …")
        return self._select.batches()

    def close(self) -> None:
        """End the iteration, also one of another thread."""
        self._select.interrupt()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._select.__exit__(kind, exc, trace)
