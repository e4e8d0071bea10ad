"""The thread that deletes rows from tables when their retention has expired."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from velostream.errors import VelostreamError
from velostream.model.moments import micros
from velostream.model.statements import CreateTable
from velostream.spark.failures import translate

if TYPE_CHECKING:
    from collections.abc import Callable

    from velostream.engine.bad_rows.dead_letters import DeadLetters
    from velostream.runtime.catalog.catalog import Catalog
    from velostream.serving.table.store import TableStore

log = structlog.get_logger("velostream.retention")

LEAVING = frozenset({"retention", "state.ttl"})
"""Properties by which a table's rows expire."""
_LOOK_SECONDS = 0.5
"""Seconds between two checks for expired rows."""


class ExpiryThread:
    """Deletes expired rows from tables; its thread starts when the first such table exists."""

    def __init__(
        self,
        catalog: Catalog,
        store: TableStore,
        clock: Callable[[], datetime],
        letters: DeadLetters | None = None,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._letters = letters
        if letters is not None:
            letters.when_kept(self.look)

    def look(self) -> None:
        """Start the thread, if a table has expiring rows."""
        letters = self._letters is not None and len(self._letters.table) > 0
        if self._thread is None and not self._stop.is_set() and (letters or self._names()):
            self._thread = threading.Thread(target=self._run, name="retention", daemon=True)
            self._thread.start()

    def _names(self) -> list[str]:
        return [
            entry.name
            for entry in self._catalog
            if isinstance(entry.statement, CreateTable) and LEAVING & entry.statement.properties.keys()
        ]

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            self._expire_letters()
            for name in self._names():
                if self._catalog.awaited(name):
                    continue
                # The table may be dropped or closed meanwhile; a failed write is logged and tried again.
                try:
                    self._expire(name)
                except (VelostreamError, OSError) as exc:
                    log.warning("retention", table=name, reason=translate(exc).message)

    def _expire_letters(self) -> None:
        if self._letters is None:
            return
        try:
            # Dead letters are stamped with the machine's time, whatever clock the statements use.
            self._letters.expire(datetime.now(UTC))
        except (VelostreamError, OSError) as exc:
            log.warning("retention", table="dead_letters", reason=translate(exc).message)

    def _expire(self, name: str) -> None:
        table = self._store.readable(name)
        if table is None:
            return
        due = table.next_due
        if due is not None and due <= micros(self._clock()):
            table.expire()

    def stop(self) -> None:
        """Stop after the commit in progress."""
        self._stop.set()
        if self._thread is not None:
            with suppress(RuntimeError):
                self._thread.join(30)
