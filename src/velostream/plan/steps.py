"""Steps of a plan, as EXPLAIN prints them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class StepKind(StrEnum):
    """How a step is maintained when its input changes."""

    SOURCE = "source"
    CLOCK = "by the clock"
    STATELESS = "stateless"
    MERGE = "merge"
    AFFECTED_KEYS = "affected keys"
    LOOKUP = "lookup"
    WATERMARK = "by the watermark"
    RECOMPUTE = "full recompute"


@dataclass(frozen=True)
class Step:
    """One step of a plan: what it does, the kind of work per change, why, and the state it keeps."""

    kind: StepKind
    what: str
    why: str
    state: str = "none"
