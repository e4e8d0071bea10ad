"""What makes starts and small batches fast, made once per machine and kept in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from velostream.runtime.java import JavaHome


@dataclass(frozen=True)
class Prepared:
    """The parts that are there; each is optional."""

    jars: tuple[Path, ...] = ()
    archive: Path | None = None


def prepared(cache_dir: Path, java: JavaHome) -> Prepared:
    """What the cache holds for this pyspark and this Java; only looks."""
    return Prepared()
