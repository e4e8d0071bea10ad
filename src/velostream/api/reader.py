"""A data directory that is only read: through the process that holds it, or else from its files."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from velostream.api.attached import AttachedDatabase
from velostream.api.local import LocalDatabase
from velostream.api.table import Table
from velostream.errors import ClosedError, DataDirError
from velostream.model.lifetime import Lifetime, while_open
from velostream.runtime.datadir import DataDirectory
from velostream.runtime.instance import Instance
from velostream.serving.table.end import End

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from velostream.api.access import SelectAccess, TableAccess
    from velostream.config import Settings
    from velostream.model.jobs import JobInfo
    from velostream.runtime.answers.result import Result
    from velostream.runtime.statements.dml import Params
    from velostream.serving.durable.verification import TableReport

_GLANCE = 0.5
"""Seconds after which a subscription looks who holds the directory."""


class ReadDatabase:
    """The newest state of a data directory, whoever writes it; every change is refused.

    Files are read again after a process has held the directory. The database that was read before is closed
    one such change later, so that calls of other threads can end.
    """

    def __init__(self, settings: Settings) -> None:
        self.lifetime = Lifetime()
        self._settings = settings
        self._directory = DataDirectory(settings.data_dir)
        if not self._directory.exists():
            raise DataDirError(
                f"there is no data directory {self._directory.root}",
                hint="name the folder that velo run or connect made; only reading does not make one",
            )
        self._attached = AttachedDatabase(settings.data_dir, read_only=True)
        self._lock = Lock()
        self._opened: LocalDatabase | None = None
        self._before: LocalDatabase | None = None
        self._state: int | None = None

    def _current(self) -> LocalDatabase | AttachedDatabase:
        """The database to ask now."""
        with self._lock:
            self.lifetime.check()
            if self._directory.holder() is not None:
                return self._attached
            state = self._directory.last_held()
            if self._opened is None or state != self._state:
                if self._before is not None:
                    self._before.close()
                self._before, self._state = self._opened, state
                self._opened = LocalDatabase(Instance(self._settings, read_only=True))
            return self._opened

    @while_open
    def sql(self, text: str, params: Params = None) -> Result:
        """Run statements that change nothing."""
        return self._current().sql(text, params)

    @while_open
    def stream(self, text: str, params: Params = None, *, once: bool = False) -> SelectAccess:
        """Follow a SELECT."""
        return self._current().stream(text, params, once=once)

    @while_open
    def table(self, name: str) -> Table:
        """A table by name."""
        identity = self._found(name)[1]

        def opened() -> TableAccess:
            table, now = self._found(name)
            if now != identity:
                message, hint = End.REPLACED.told(name)
                raise ClosedError(message, hint=hint)
            return table

        return Table(opened, _CurrentChanges(opened))

    def _found(self, name: str) -> tuple[TableAccess, str]:
        current = self._current()
        if isinstance(current, AttachedDatabase):
            remote = current.remote_table(name)
            return remote, remote.identity
        table = current.database.table(name)
        return table, current.database.store.identity(table.name)

    @while_open
    def jobs(self) -> list[JobInfo]:
        """The jobs of the process that holds the directory; none while nobody does."""
        return self._current().jobs()

    @while_open
    def wait_idle(self, timeout: float) -> bool:
        """Wait until every running job has processed all that its sources have."""
        return self._current().wait_idle(timeout)

    @while_open
    def verify(self) -> list[TableReport]:
        """Check the files of every table."""
        return self._current().verify()

    @while_open
    def udf(self, function: Callable[..., Any], returns: str | None, name: str | None) -> None:
        """Register a function for SQL, where the directory's files are read here."""
        self._current().udf(function, returns, name)

    @while_open
    def partition_strategy(self, name: str, function: Callable[[pa.RecordBatch, int], Any]) -> None:
        """Register a partition strategy, where the directory's files are read here."""
        self._current().partition_strategy(name, function)

    @while_open
    def spark(self) -> SparkSession:
        """The Spark session for reading; refused while another process holds the directory."""
        return self._current().spark()

    def close(self) -> None:
        """Close what was opened for reading."""
        if self.lifetime.end("the database is closed", hint="open it again: velostream.connect(…)"):
            with self._lock:
                for each in (self._before, self._opened, self._attached):
                    if each is not None:
                        each.close()


@dataclass(frozen=True)
class _CurrentChanges:
    """The changes of a table that is read from its files and from another process in turn."""

    opened: Callable[[], TableAccess]

    def newest(self) -> int:
        """The newest version."""
        return self.opened().version

    def between(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        """The versions after `after` up to `upto` with their changed rows."""
        return self.opened().changelog.between(after, upto)

    def wait(self, seen: int, timeout: float | None, ended: Callable[[], bool]) -> bool:
        """Wait for a version beyond `seen`, or until `ended` holds; False when the timeout passed."""
        left = timeout
        while True:
            glance = _GLANCE if left is None else min(_GLANCE, left)
            if self.opened().changelog.wait(seen, glance, ended):
                return True
            if left is not None:
                left -= glance
                if left <= 0:
                    return False

    def wake(self) -> None:
        """Waiting threads look by themselves."""
