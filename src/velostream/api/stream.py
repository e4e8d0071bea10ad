"""A followed SELECT, as users hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.errors import ClosedError
from velostream.secrets import redact_statement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    import pyarrow as pa

    from velostream.api.access import SelectAccess

_SHOWN = 60
"""The characters of a statement that its stream shows."""


class Stream:
    """`with db.stream("SELECT …") as live: for added, removed in live: …`

    Each pair has the rows that were added and those that were retracted, as Arrow tables; `removed` is None
    where nothing can be retracted. Leaving the `with` ends it.
    """

    def __init__(self, select: SelectAccess, text: str) -> None:
        self._select = select
        self._text = text
        self._state = "not begun"

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of its rows; None before it was entered."""
        return self._select.schema

    def __enter__(self) -> Stream:
        self._select.__enter__()
        self._state = "open"
        return self

    def __iter__(self) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        if self._state == "not begun":
            raise ClosedError("the SELECT has not begun", hint="with db.stream(…) as live: …")
        return self._select.batches()

    def close(self) -> None:
        """End the iteration, also one of another thread."""
        self._select.interrupt()
        self._state = "closed"

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._select.__exit__(kind, exc, trace)
        self._state = "closed"

    def __repr__(self) -> str:
        text = " ".join(redact_statement(self._text).split())
        return f"<Stream of {text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}: {self._state}>"
