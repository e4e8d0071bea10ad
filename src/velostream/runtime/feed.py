"""The feed of a job: announcements of source positions, which Spark turns into micro-batches.

An announcement is a small file that holds the newest position of each source. Spark's file stream source
finds it, logs it in the checkpoint and runs one micro-batch. The batch then brings the job from the position
that its result records to the newest announced one, so a replay can neither lose nor double a row, whatever
files Spark thinks belong to it. A feed lives as long as its query: after a restart the job announces again.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from velostream.model.changes import SourceOffsets


class Feed:
    """One folder of announcements, written by the job's thread, read by its batches."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._number = 0
        self._newest: SourceOffsets | None = None

    def announce(self, offsets: SourceOffsets) -> None:
        """Make the position known to Spark. Not durable by itself: the source's own position is."""
        self._newest = offsets
        self._number += 1
        temporary = self._folder / f".{self._number}"
        temporary.write_text(json.dumps(offsets), encoding="utf-8")
        temporary.rename(self._folder / f"{self._number:012d}")

    @property
    def newest(self) -> SourceOffsets | None:
        """The newest announcement; None before the first."""
        return self._newest

    def forget(self) -> None:
        """Remove announcements that a finished batch has taken in; the newest keeps the numbering."""
        for path in self._folder.iterdir():
            if path.name.isdigit() and int(path.name) < self._number:
                path.unlink(missing_ok=True)

    def stream(self, spark: SparkSession) -> DataFrame:
        """The feed as a streaming frame."""
        reader = spark.readStream.format("text").option("maxFilesPerTrigger", 1)
        return reader.load(str(self._folder))
