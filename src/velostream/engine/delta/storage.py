"""The storage of tables in Delta Lake: creates, opens and verifies them for the store."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.disk.full_disk import storing
from velostream.disk.sealed_json import sync_folder
from velostream.engine.delta import maintenance
from velostream.engine.delta.log import DeltaLog
from velostream.engine.delta.reader import ROWS
from velostream.engine.delta.table import DeltaTable, refuse_types
from velostream.serving.durable import description

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import SparkSession

    from velostream.model.table_storage import StorageTraits
    from velostream.model.tables import TableSpec
    from velostream.serving.durable.verification import TableReport
    from velostream.serving.sql.questions import Questions
    from velostream.spark.delta import DeltaEngine


@dataclass(frozen=True)
class DeltaStorage:
    """Tables with `"table.storage" = "delta"`: a `SparkStorage`."""

    traits: StorageTraits
    delta: DeltaEngine
    questions: Questions
    clock: Callable[[], datetime]

    def session(self) -> SparkSession:
        """A session with Delta."""
        return self.delta.session()

    @property
    def root(self) -> SparkSession | None:
        """The session with Delta from which the others are made; None before the first."""
        return self.delta.root

    def create(self, folder: Path, spec: TableSpec) -> None:
        """Create the folder of a new, empty table; Delta's own files are written with the first rows."""
        refuse_types(spec.schema, spec.name)
        # Fails now if Delta cannot be used, for instance without its jars, and not with the first rows.
        self.delta.session()
        aside = folder.with_name(f".new-{folder.name}")
        shutil.rmtree(aside, ignore_errors=True)
        with storing(folder):
            try:
                aside.mkdir(mode=0o700)
                description.write_spec(aside, spec)
                aside.rename(folder)
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                raise
            sync_folder(folder.parent)

    def open(self, folder: Path, *, read_only: bool) -> DeltaTable:
        """The table in its newest version; Spark is not needed yet."""
        return DeltaTable(folder, self.questions, self.delta, read_only=read_only, clock=self.clock)

    def verify(self, folder: Path) -> TableReport:
        """Check the files of a table, which need not be fit to open."""
        return maintenance.verify(folder.name, folder, DeltaLog(folder / ROWS))
