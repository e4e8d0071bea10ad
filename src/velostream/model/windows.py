"""Windows as a plan carries them: which columns bound them, when they close, what is done with late rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from velostream.model.statements import WindowKind

LateRows = Literal["dead_letter", "drop", "update"]


@dataclass(frozen=True)
class Windowing:
    """How the groups of one statement are bounded in time. Lengths are in microseconds."""

    kind: WindowKind | None
    """None for EMIT FINAL without a window: everything is one, which closes when the source ends."""
    final: bool
    """Whether readers see a window only when it has closed."""
    grace: int = 0
    """How long after its end a window still takes rows."""
    late: LateRows = "dead_letter"
    close_after: float | None = None
    """Seconds without rows after which windows close though no later row came."""
    gap: int = 0
    """Session windows: the silence that ends one."""
    size: int = 0
    advance: int = 0
    """Sliding windows: how long one is, and how far it is from one to the next."""
    offset: int = 0
    """How far windows begin after those that are counted from 1970."""
    span: int = 0
    """How long after a row's event time the last window that it is in ends at most; sessions may go on."""
    ttl: int | None = None
    """How long after it has closed a window is forgotten; None: it is not for that."""
    time: str = ""
    """SQL of a row's event time."""
    start: str = ""
    end: str = ""
    """The key columns with the window's bounds; set once the plan has named them."""

    @property
    def bounded(self) -> bool:
        """Whether windows end by themselves."""
        return self.kind is not None


@dataclass(frozen=True)
class EventTime:
    """Where the rows of a source have their event time, and how far they may be out of order."""

    column: str | None = None
    """None: when the row entered its source."""
    format: str = "auto"
    delay: int = 0
    """Microseconds."""
    idle: float = 60.0
    """Seconds after which a silent partition stops holding the watermark back."""
