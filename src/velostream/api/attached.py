"""A database of another process, which holds the data directory: asked through its socket."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

from velostream.api.table import Table
from velostream.errors import DataDirError
from velostream.model.lifetime import Lifetime, while_open
from velostream.runtime.answers.events import Awaiting, Changes, Following
from velostream.runtime.socket.client import Client
from velostream.runtime.socket.remote_table import RemoteTable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path
    from types import TracebackType

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from velostream.model.jobs import JobInfo
    from velostream.runtime.answers.events import AnswerEvent
    from velostream.runtime.answers.result import Result
    from velostream.runtime.statements.dml import Params
    from velostream.serving.durable.verification import TableReport


class AttachedDatabase:
    """A database that another process has opened; it goes on when this connection is closed."""

    def __init__(self, root: Path, *, read_only: bool = False) -> None:
        self.lifetime = Lifetime()
        self._root = root
        self._client = Client(root, read_only=read_only)

    @while_open
    def sql(self, text: str, params: Params = None) -> Result:
        """Run statements there."""
        return self._client.sql(text, params)

    @while_open
    def stream(self, text: str, params: Params = None, *, once: bool = False) -> RemoteSelect:
        """Follow a SELECT there."""
        return RemoteSelect(lambda stop: self._client.stream(text, params, once=once, stop=stop))

    @while_open
    def table(self, name: str) -> Table:
        """A table by name."""
        table = self.remote_table(name)
        return Table(lambda: self._still(table), table)

    def remote_table(self, name: str) -> RemoteTable:
        """The table without the handle that users hold."""
        return RemoteTable(self._client, name)

    def _still(self, table: RemoteTable) -> RemoteTable:
        self.lifetime.check()
        return table

    @while_open
    def jobs(self) -> list[JobInfo]:
        """Every job there."""
        return self._client.jobs()

    @while_open
    def wait_idle(self, timeout: float) -> bool:
        """Wait until every running job there has processed all that its sources have."""
        return self._client.wait_idle(timeout)

    @while_open
    def verify(self) -> list[TableReport]:
        """Check the files of every table."""
        return self._client.verify()

    def udf(self, function: Callable[..., Any], returns: str | None, name: str | None) -> None:
        """Refused: a function cannot be sent."""
        raise self._elsewhere("Python functions are registered")

    def partition_strategy(self, name: str, function: Callable[[pa.RecordBatch, int], Any]) -> None:
        """Refused: a function cannot be sent."""
        raise self._elsewhere("partition strategies are registered")

    def spark(self) -> SparkSession:
        """Refused: Spark runs in the other process."""
        raise self._elsewhere("Spark runs")

    def _elsewhere(self, what: str) -> DataDirError:
        self.lifetime.check()
        return DataDirError(
            f"process {self._client.holder} holds data directory {self._root}: {what} there",
            hint="do it in that program, or stop it and open the directory here",
        )

    def close(self) -> None:
        """Close this connection."""
        self.lifetime.end("the database is closed", hint="open it again: velostream.connect(…)")


class RemoteSelect:
    """A SELECT that is followed in the other process."""

    def __init__(self, events: Callable[[Event], Generator[AnswerEvent]]) -> None:
        self._stop = Event()
        self._begin = events
        self._events: Generator[AnswerEvent] | None = None
        self.schema: pa.Schema | None = None

    def __enter__(self) -> RemoteSelect:
        self._events = self._begin(self._stop)
        first = next((event for event in self._events if not isinstance(event, Awaiting)), None)
        self.schema = first.schema if isinstance(first, Following) else None
        return self

    def batches(self) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        """Rows added and rows retracted, until it ends or is interrupted."""
        assert self._events is not None
        for event in self._events:
            if isinstance(event, Changes):
                yield event.added, event.removed

    def interrupt(self) -> None:
        """End the iteration, also one of another thread."""
        self._stop.set()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._events is not None:
            self._events.close()
