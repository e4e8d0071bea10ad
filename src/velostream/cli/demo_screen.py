"""How the demo looks: a live screen on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import dataclass, field
from decimal import Decimal
from io import StringIO
from typing import TYPE_CHECKING, Any

import click

from velostream.cli.demo_story import DELETED, PRICED, RATED, SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

    from velostream.runtime.database import Database

GLOW_SECONDS = 4.0
"""How long a number that jumped stays highlighted."""
_EVENTS = 6
_TRADERS = 6


@dataclass(frozen=True)
class Reading:
    """What the tables say at one moment."""

    pnl: Mapping[str, Any] = field(default_factory=dict)
    symbols: Mapping[str, Any] = field(default_factory=dict)
    held: Mapping[str, tuple[int, Decimal]] = field(default_factory=dict)
    trades: int = 0
    rate: float = 0.0
    latency: float = 0.0
    groups: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)

    def name(self, user: str) -> str | None:
        """A trader's name, if the P&L table has them."""
        row = self.pnl.get(user)
        return row.name if row is not None else None

    def price(self, symbol: str) -> Decimal | None:
        """The last price of a symbol, once the P&L table counts with it too."""
        row = self.symbols.get(symbol)
        return row.last_price if row is not None else None

    def holding(self, symbol: str) -> int:
        """How many of the traders may hold a symbol."""
        row = self.symbols.get(symbol)
        return sum(r.risk_tolerance >= row.risk_rating for r in self.pnl.values()) if row else 0

    def positions(self) -> int:
        """Positions of all traders together."""
        return sum(row.positions for row in self.pnl.values())


def reading(database: Database) -> Reading:
    """Read all tables; each is read whole, as of one version."""
    pnl, symbols, positions = (database.table(n) for n in ("pnl", "symbol_metadata", "user_positions"))
    held: dict[str, tuple[int, Decimal]] = {}
    row: Any
    for row in positions.page(limit=10_000):
        size, value = held.get(row.symbol, (0, Decimal(0)))
        held[row.symbol] = (size + row.position_size, value + row.position_value)
    job = database.job("user_positions").stats
    return Reading(
        pnl=_by_first(pnl.page()),
        symbols=_by_first(symbols.page()),
        held=held,
        trades=job.records_in,
        rate=job.rate_in,
        latency=job.latency_ms,
        groups=len(positions),
        versions={t.name: t.version for t in (positions, symbols, pnl)},
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
        """A statement is being carried out."""
        self.creating = (what, text)
        self.unseen.append(text + ";\n")

    def created(self, what: str) -> None:
        """It is."""
        self.done.append(what)
        self.creating = None

    def update(self, reading: Reading) -> None:
        """Take a new reading, and note which numbers moved and which way."""
        now = time.monotonic()
        for user, row in reading.pnl.items():
            before = self.last.pnl.get(user)
            if before is not None and before.pnl != row.pnl:
                self.moves[user] = (1 if row.pnl > before.pnl else -1, now)
        if self.last.pnl and reading.pnl and len(reading.pnl) < len(self.last.pnl):
            for user in set(self.last.pnl) - set(reading.pnl):
                self.marked[user] = now
        self.last = reading

    def mark(self, name: str) -> None:
        """Highlight a symbol from now on for a while."""
        self.marked[name] = time.monotonic()

    def glowing(self, name: str) -> bool:
        """Whether something still is highlighted."""
        return time.monotonic() - self.marked.get(name, -1e9) < GLOW_SECONDS

    def event(self, text: str, *, good: bool = False) -> None:
        """Something happened."""
        self.events.append((time.monotonic() - self.started, text, good))
        self.unseen.append(("  → " if good else "") + text)


class Plain:
    """Lines, for logs and pipes."""

    def __init__(self) -> None:
        self._scene = Scene()
        self._told = 0.0

    @contextlib.contextmanager
    def showing(self, scene: Scene) -> Iterator[None]:
        """Tell the scene while the block runs."""
        self._scene = scene
        yield
        self.update()

    def update(self) -> None:
        """Tell what is new, and the numbers now and then."""
        self._unseen()
        last = self._scene.last
        if last.pnl and time.monotonic() - self._told >= 2.0:
            self._told = time.monotonic()
            self._numbers(last)

    def _unseen(self) -> None:
        while self._scene.unseen:
            click.echo(self._scene.unseen.popleft())

    def _numbers(self, last: Reading) -> None:
        traders = ", ".join(f"{row.name} {row.pnl:+,.2f}" for _, row in sorted(last.pnl.items()))
        click.echo(f"{last.trades:,} trades, {last.rate:,.0f}/s, {last.groups} positions; P&L: {traders}")

    def snapshot(self) -> None:
        """Show the numbers that have just followed."""
        self._unseen()
        self._told = time.monotonic()
        self._numbers(self._scene.last)

    def goodbye(self, line: str, *commands: str) -> None:
        """The last words."""
        self._unseen()
        click.echo(line)
        for command in commands:
            click.echo(f"  {command}")


class Screen:
    """A live screen."""

    def __init__(self, capture: str | None = None) -> None:
        from rich.console import Console

        self.console: Console = (
            Console(record=True, width=104, height=34, force_terminal=True, color_system="truecolor")
            if capture
            else Console()
        )
        self._capture = capture
        self._scene = Scene()
        self._live: Live | None = None

    @contextlib.contextmanager
    def showing(self, scene: Scene) -> Iterator[None]:
        """Draw the scene while the block runs."""
        from rich.live import Live

        self._scene = scene
        self._live = Live(get_renderable=lambda: picture(scene), console=self.console, refresh_per_second=8)
        with self._live:
            yield

    def update(self) -> None:
        """The screen redraws by itself."""

    def snapshot(self) -> None:
        """Save the screen, if it is to be captured."""
        if self._capture is None:
            return
        from rich.console import Console

        canvas = Console(
            record=True, width=104, force_terminal=True, color_system="truecolor", file=StringIO()
        )
        canvas.print(picture(self._scene))
        canvas.save_svg(self._capture, title="velo demo")

    def goodbye(self, line: str, *commands: str) -> None:
        """The last words."""
        from rich.syntax import Syntax
        from rich.text import Text

        self.console.print(Text(line, "bold" if commands else "bright_black"))
        for command in commands:
            self.console.print(Syntax(f"  {command}", "bash", background_color="default", word_wrap=True))


# --- drawing ----------------------------------------------------------------------------------------


def picture(scene: Scene) -> RenderableType:
    """The whole screen as of now."""
    from rich.columns import Columns
    from rich.console import Group
    from rich.text import Text

    title = Text.assemble(
        ("velostream ", "bold cyan"), ("streaming SQL on Spark: tables that stay right", "bright_black")
    )
    if not scene.last.pnl:
        return Group(title, Text(), _creation(scene))
    tables = Columns([_pnl(scene), _symbols(scene)], padding=(0, 2))
    return Group(title, Text(), tables, _figures(scene), Text(), _events(scene))


def _creation(scene: Scene) -> RenderableType:
    from rich.console import Group
    from rich.spinner import Spinner
    from rich.syntax import Syntax
    from rich.text import Text

    parts: list[RenderableType] = [
        Text.assemble(("✓ ", "green"), (what, "bright_black")) for what in scene.done
    ]
    if scene.creating is not None:
        what, text = scene.creating
        elapsed = time.monotonic() - scene.started
        first = "" if scene.done else ", Spark is starting beside it"
        parts.append(_spinning(Spinner, f"{what}{first}  [bright_black]{elapsed:.0f} s[/]"))
        parts.append(Syntax(text, "sql", background_color="default", padding=(1, 2)))
    return Group(*parts)


_spinners: dict[str, Any] = {}


def _spinning(kind: Any, text: str) -> RenderableType:
    """One spinner for all frames: a new one per frame would never turn."""
    spinner = _spinners.setdefault("dots", kind("dots", style="cyan"))
    spinner.update(text=text)
    turning: RenderableType = spinner
    return turning


def _pnl(scene: Scene) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.ROUNDED, border_style="bright_black", title="pnl", title_style="bold", title_justify="left"
    )
    table.add_column("trader")
    table.add_column("risk ≤", justify="right")
    table.add_column("positions", justify="right")
    table.add_column("cost", justify="right", min_width=14)
    table.add_column("P&L", justify="right", min_width=15)
    for user, row in sorted(scene.last.pnl.items()):
        table.add_row(
            f"{row.name}",
            str(row.risk_tolerance),
            str(row.positions),
            f"{row.cost:,.2f}",
            _moving(scene, user, row.pnl),
        )
    for _ in range(_TRADERS - len(scene.last.pnl)):
        gone = scene.glowing(DELETED)
        table.add_row(Text("deleted", "red italic") if gone else "", "", "", "", "")
    return table


def _moving(scene: Scene, user: str, value: Decimal) -> Text:
    from rich.text import Text

    direction, at = scene.moves.get(user, (0, 0.0))
    fresh = time.monotonic() - at < 1.0
    mark = ("▲" if direction > 0 else "▼") if fresh and direction else " "
    style = ("green" if value >= 0 else "red") + (" bold" if fresh else "")
    if scene.glowing(PRICED) or scene.glowing(RATED):
        style += " on grey23"
    return Text(f"{value:+,.2f} {mark}", style)


def _symbols(scene: Scene) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.ROUNDED,
        border_style="bright_black",
        title="symbol_metadata, user_positions",
        title_style="bold",
        title_justify="left",
    )
    table.add_column("symbol")
    table.add_column("risk", justify="right")
    table.add_column("last", justify="right")
    table.add_column("held", justify="right", min_width=9)
    for symbol, *_ in SYMBOLS:
        row = scene.last.symbols.get(symbol)
        size, _value = scene.last.held.get(symbol, (0, Decimal(0)))
        glow = "black on yellow" if scene.glowing(symbol) else ""
        table.add_row(
            Text(symbol, glow),
            Text(str(row.risk_rating) if row else "", glow if symbol == RATED else ""),
            Text(f"{row.last_price:,.2f}" if row else "", glow if symbol == PRICED else ""),
            f"{size:,}",
        )
    return table


def _figures(scene: Scene) -> RenderableType:
    from rich.text import Text

    last = scene.last
    versions = ", ".join(f"{name} v{number:,}" for name, number in last.versions.items())
    return Text.assemble(
        (f"{last.trades:,}", "bold"),
        f" trades, {last.rate:,.0f}/s, in {last.groups} groups; a batch takes {last.latency:,.0f} ms; ",
        (versions, "bright_black"),
    )


def _events(scene: Scene) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    lines: list[RenderableType] = []
    for at, text, good in scene.events:
        style = "green" if good else ""
        lines.append(
            Text.assemble((f"{at:5.1f} s  ", "bright_black"), ("✓ " if good else "", "green"), (text, style))
        )
    return Group(*lines)
