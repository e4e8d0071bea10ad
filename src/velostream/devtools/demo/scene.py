"""The state of the demo: readings of its tables, and what happened."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from velostream.model.jobs import JobStats

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from velostream.runtime.instance import Instance

TABLES = ("user_positions", "symbol_metadata", "pnl")
GLOW_SECONDS = 4.0
"""Seconds for which a change stays highlighted."""
_EVENTS = 5


@dataclass(frozen=True)
class Reading:
    """The contents of the tables at one moment."""

    pnl: Mapping[str, Any] = field(default_factory=dict)
    symbols: Mapping[str, Any] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    stats: JobStats = field(default_factory=JobStats)
    groups: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)
    reference_seen: int = 0
    """The version of symbol_metadata that the P&L table contains."""

    def name(self, user: str) -> str | None:
        """A trader's name, if the P&L table has them."""
        row = self.pnl.get(user)
        return row.name if row is not None else None

    def counts_with(self, symbol: str, price: Decimal) -> bool:
        """Whether the P&L table was computed with this price."""
        row = self.symbols.get(symbol)
        newest = self.versions.get("symbol_metadata", 0)
        return row is not None and row.last_price == price and self.reference_seen >= newest

    def holding(self, symbol: str) -> int:
        """How many of the traders may hold a symbol."""
        row = self.symbols.get(symbol)
        return sum(r.risk_tolerance >= row.risk_rating for r in self.pnl.values()) if row else 0

    def positions(self) -> int:
        """Positions of all traders together."""
        return sum(row.positions for row in self.pnl.values())


def reading(database: Instance) -> Reading:
    """Read the tables that there are; each is read whole, as of one version."""
    known = database.store.names()
    found = {name: database.table(name) for name in TABLES if name in known and database.catalog.get(name)}
    held: dict[str, int] = {}
    row: Any
    positions, pnl = found.get("user_positions"), found.get("pnl")
    for row in positions.page(limit=10_000) if positions is not None else ():
        held[row.symbol] = held.get(row.symbol, 0) + row.position_size
    job = database.jobs_by_name.get("user_positions")
    commit = pnl.last_commit if pnl is not None else None
    return Reading(
        pnl=_by_first(pnl.page()) if pnl is not None else {},
        symbols=_by_first(found["symbol_metadata"].page()) if "symbol_metadata" in found else {},
        held=held,
        stats=job.stats if job is not None else JobStats(),
        groups=len(positions) if positions is not None else 0,
        versions={name: table.version for name, table in found.items()},
        reference_seen=int(commit.offsets["symbol_metadata"]["version"]) if commit is not None else 0,
    )


def _by_first(rows: list[Any]) -> dict[str, Any]:
    return {row[0]: row for row in rows}


class Scene:
    """What has happened so far, and the newest reading."""

    def __init__(self) -> None:
        self.last = Reading()
        self.events: deque[tuple[float, str, bool]] = deque(maxlen=_EVENTS)
        self.unseen: deque[str] = deque()
        self.creating: tuple[str, str] | None = None
        self.done: list[str] = []
        self.marked: dict[str, float] = {}
        self.moves: dict[str, tuple[int, float]] = {}
        self.started = time.monotonic()

    def create(self, what: str, text: str) -> None:
        """A statement starts."""
        self.creating = (what, text)
        self.unseen.append(text + ";\n")

    def created(self, what: str) -> None:
        """A statement is done."""
        self.done.append(what)
        self.creating = None

    def update(self, reading: Reading) -> None:
        """Set a new reading, and note which numbers changed in which direction."""
        now = time.monotonic()
        for user, row in reading.pnl.items():
            before = self.last.pnl.get(user)
            if before is not None and before.pnl != row.pnl:
                self.moves[user] = (1 if row.pnl > before.pnl else -1, now)
        self.last = reading

    def mark(self, name: str) -> None:
        """Highlight a symbol or trader from now on for a while."""
        self.marked[name] = time.monotonic()

    def glowing(self, name: str) -> bool:
        """Whether something is still highlighted."""
        return time.monotonic() - self.marked.get(name, -1e9) < GLOW_SECONDS

    def event(self, text: str, *, good: bool = False) -> None:
        """Something happened."""
        self.events.append((time.monotonic() - self.started, text, good))
        self.unseen.append(("  → " if good else "") + text)
