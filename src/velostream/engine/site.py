"""What every job of a database shares."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from velostream.engine.inputs.spreading import Strategies
from velostream.engine.inputs.tables import visible_key
from velostream.model.lifetime import Lifetime
from velostream.model.table_storage import storage_of
from velostream.plan.strategy import Known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from velostream.config import Settings
    from velostream.engine.on_spark import SparkStorage
    from velostream.serving.contract.table import Table
    from velostream.serving.table.store import TableStore


class Running(Protocol):
    """A running SELECT that can be interrupted."""

    def interrupt(self) -> None:
        """End it."""


class Attempts:
    """Counts how often each statement tried to reach its sources and its sink. Thread safe.

    Also of statements that could not be created in the end, which have no job to count for them.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = Lock()

    def count(self, statement: str, outcome: str) -> None:
        """Count one attempt; the outcome is `ok` or the code of an error."""
        with self._lock:
            self._counts[statement, outcome] += 1

    def counts(self) -> dict[tuple[str, str], int]:
        """The number of attempts by statement and outcome."""
        with self._lock:
            return dict(self._counts)


@dataclass(frozen=True)
class Site:
    """What every job of a database shares."""

    settings: Settings
    store: TableStore
    spark: Callable[[], SparkSession]
    storages: Mapping[str, SparkStorage]
    """The storages outside memory, by name."""
    once: bool = False
    tmp: Path | None = None
    """The folder for temporary files of SELECTs; None: the system's."""
    selects: set[Running] = field(default_factory=set, compare=False)
    """The SELECTs that are running."""
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    """The wall clock, by which rows age; tests replace it."""
    pace: timedelta | None = None
    """The longest poll interval of jobs, whatever their sources say; tests poll more often."""
    lifetime: Lifetime = field(default_factory=Lifetime, compare=False)
    """Ends when the database begins to close."""
    attempts: Attempts = field(default_factory=Attempts, compare=False)
    """How often sources and sinks were tried, and how that ended."""
    strategies: Strategies = field(default_factory=Strategies, compare=False)
    """Partitioning strategies besides the built-in ones."""
    places: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Tables by another name or edition than the current: of jobs that are built to replace others."""

    def table(self, name: str) -> Table:
        """The table that statements of this site mean by a name."""
        stored, edition = self.places.get(name, (name, None))
        return self.store.open(stored, edition=edition)

    def known(self, tables: Iterable[str], columns: Mapping[str, pa.Schema] | None = None) -> Known:
        """What the planner may know of these tables; `columns` are the discovered columns of sources."""
        specs = {name: self.table(name).spec for name in tables}
        names = {name: tuple(schema.names) for name, schema in (columns or {}).items()}
        return Known(
            {**{name: spec.visible for name, spec in specs.items()}, **names},
            {name: visible_key(spec) for name, spec in specs.items()},
            {name: storage_of(spec.options) for name, spec in specs.items()},
            self.settings,
            once=self.once,
        )
