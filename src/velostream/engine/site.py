"""What every job of a database shares."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
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
    from velostream.serving.table.store import TableStore


class Running(Protocol):
    """A running SELECT that can be interrupted."""

    def interrupt(self) -> None:
        """End it."""


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
    strategies: Strategies = field(default_factory=Strategies, compare=False)
    """Partitioning strategies besides the built-in ones."""

    def known(self, tables: Iterable[str], columns: Mapping[str, pa.Schema] | None = None) -> Known:
        """What the planner may know of these tables; `columns` are the discovered columns of sources."""
        specs = {name: self.store.open(name).spec for name in tables}
        names = {name: tuple(schema.names) for name, schema in (columns or {}).items()}
        return Known(
            {**names, **{name: spec.visible for name, spec in specs.items()}},
            {name: visible_key(spec) for name, spec in specs.items()},
            {name: storage_of(spec.options) for name, spec in specs.items()},
            self.settings,
        )
