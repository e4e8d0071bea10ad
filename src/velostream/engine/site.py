"""What every job of a database shares."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from velostream.engine.inputs.spreading import Strategies
from velostream.engine.inputs.tables import visible_key
from velostream.model.lifetime import Lifetime
from velostream.plan.strategy import Known
from velostream.serving.table.store import STORAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from velostream.config import Settings
    from velostream.serving.table.store import TableStore
    from velostream.spark.delta import DeltaEngine


class Running(Protocol):
    """Something that runs until it is interrupted."""

    def interrupt(self) -> None:
        """End it."""


@dataclass(frozen=True)
class Site:
    """What every job of a database shares."""

    settings: Settings
    store: TableStore
    spark: Callable[[], SparkSession]
    delta: DeltaEngine
    once: bool = False
    tmp: Path | None = None
    """Where a SELECT keeps what it read while it runs; None: the system's own folder for such things."""
    selects: set[Running] = field(default_factory=set, compare=False)
    """The SELECTs that run now."""
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    """What time it is, for rows that come and go by it."""
    pace: timedelta | None = None
    """How often jobs look for something new at least, whatever their sources say; tests look more often."""
    lifetime: Lifetime = field(default_factory=Lifetime, compare=False)
    """Ends when the database begins to close."""
    strategies: Strategies = field(default_factory=Strategies, compare=False)
    """How rows may be spread over tasks, besides what is built in."""

    def known(self, tables: Iterable[str], columns: Mapping[str, pa.Schema] | None = None) -> Known:
        """What planning may know of these tables; `columns` are those that sources were found to have."""
        specs = {name: self.store.open(name).spec for name in tables}
        names = {name: tuple(schema.names) for name, schema in (columns or {}).items()}
        return Known(
            {**names, **{name: spec.visible for name, spec in specs.items()}},
            {name: visible_key(spec) for name, spec in specs.items()},
            [name for name, spec in specs.items() if spec.options.get(STORAGE) == "delta"],
            self.settings,
        )
