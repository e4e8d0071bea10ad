"""Windows as a plan holds them: their bounds, when they close, what happens to late rows."""

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
    """None for EMIT FINAL without a window: everything is one window, which closes when the source ends."""
    final: bool
    """Whether readers see a window only when it has closed."""
    grace: int = 0
    """How long after its end a window still accepts rows."""
    late: LateRows = "dead_letter"
    close_after: float | None = None
    """Seconds without rows after which windows close although no later row arrived."""
    gap: int = 0
    """Session windows: the silence that ends one."""
    size: int = 0
    advance: int = 0
    """Sliding windows: their length, and the distance from one to the next."""
    offset: int = 0
    """How far window starts are shifted from those counted from 1970."""
    span: int = 0
    """How long after a row's event time its last window can end; sessions may continue."""
    ttl: int | None = None
    """How long after closing a window is forgotten; None: never for that."""
    time: str = ""
    """SQL of a row's event time."""
    start: str = ""
    end: str = ""
    """The key columns with the window's bounds; set once the plan has named them."""

    @property
    def bounded(self) -> bool:
        """Whether windows end by themselves."""
        return self.kind is not None

    @property
    def only_added(self) -> bool:
        """Whether readers see each window once, when it has closed, and never another version of it."""
        return self.final and self.late != "update"


@dataclass(frozen=True)
class EventTime:
    """The event time of a source's rows, and how far they may be out of order."""

    column: str | None = None
    """None: when the row entered its source."""
    format: str = "auto"
    delay: int = 0
    """Microseconds."""
    idle: float = 60.0
    """Seconds after which an idle partition stops holding the watermark back."""
