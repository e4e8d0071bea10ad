"""A table that is polled, as a world of the contract of sources."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from velostream.config import Settings
from velostream.engine.opening.connect import open_source
from velostream.model.statements import SourceRef
from velostream.model.uri import Uri
from velostream.testing.contract import Row, World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tests.conftest import WaitUntil

    from velostream.connectors.base import Source


class PolledWorld(World):
    """Rows have a number of their own, by which they grow, so that equal rows are two.

    Nobody but a poll can tell that rows came, so an open source is asked until it has.
    """

    properties: ClassVar[Mapping[str, str]] = {"poll.interval": "20ms"}

    def __init__(self, folder: Path, wait_until: WaitUntil) -> None:
        self._folder, self._wait_until = folder, wait_until
        self._numbers = itertools.count(1)
        self._opened: Source | None = None

    @abstractmethod
    def uri(self, table: str) -> str:
        """The address of a table."""

    @abstractmethod
    def insert(self, rows: Sequence[tuple[object, ...]]) -> None:
        """Insert an id, a name and a number each."""

    def open(self, *, resumed: bool = False, missing: bool = False) -> Source:
        opened = self._opened = open_source(
            SourceRef("__source_1", Uri(self.uri("nowhere" if missing else "rows")), self.properties),
            Settings(data_dir=self._folder / "data"),
            self._folder / "spool",
            known=None,
            once=False,
            table=True,
            owner="job",
            resumed=resumed,
        )
        close = opened.close

        def closed() -> None:
            self._opened = None
            close()

        opened.close = closed  # type: ignore[method-assign]
        return opened

    def give(self, rows: Sequence[Row]) -> Sequence[Row]:
        self.until_polled(lambda: self.insert([(*row, next(self._numbers)) for row in rows]))
        return rows

    def until_polled(self, change: Callable[[], object]) -> None:
        before = self._opened.latest(None) if self._opened is not None else None
        change()
        if self._opened is not None:
            self._wait_until(lambda: self._opened is not None and self._opened.latest(None) != before)
