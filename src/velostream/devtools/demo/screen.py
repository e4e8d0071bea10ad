"""Output of the demo: a live screen on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import re
import time
from io import StringIO
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import click

from velostream.devtools.demo.scene import Reading, Scene
from velostream.devtools.demo.story import DELETED, PRICED, RATED, SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from rich.console import RenderableType
    from rich.text import Text

WIDE = 98
"""Columns that both tables need side by side."""
CAPTURE_WIDTH = 104
_TRADERS = 6
_TOLD_SECONDS = 2.0


class Plain:
    """Lines, for logs and pipes."""

    def __init__(self) -> None:
        self._scene = Scene()
        self._told = 0.0
        self._lock = Lock()

    @contextlib.contextmanager
    def showing(self, scene: Scene) -> Iterator[None]:
        """Print the scene while the block runs."""
        self._scene = scene
        yield
        self.update()

    def update(self) -> None:
        """Print what is new, and the numbers at intervals."""
        with self._lock:
            self._unseen()
            last = self._scene.last
            if last.held and time.monotonic() - self._told >= _TOLD_SECONDS:
                self._numbers(last)

    def snapshot(self) -> None:
        """Show the numbers that have just followed."""
        with self._lock:
            self._unseen()
            self._numbers(self._scene.last)

    def goodbye(self, line: str, *commands: str) -> None:
        """The closing message."""
        with self._lock:
            self._unseen()
            click.echo(line)
            for command in commands:
                click.echo(f"  {command}")

    def _unseen(self) -> None:
        while self._scene.unseen:
            click.echo(self._scene.unseen.popleft())

    def _numbers(self, last: Reading) -> None:
        self._told = time.monotonic()
        traders = ", ".join(f"{row.name} {row.pnl:+,.2f}" for _, row in sorted(last.pnl.items()))
        profit = f"; P&L: {traders}" if traders else ""
        figures = last.stats
        click.echo(
            f"{figures.records_in:,} trades, {figures.rate_in:,.0f}/s, {last.groups} positions{profit}"
        )


class Screen:
    """A live screen."""

    def __init__(self, capture: str | None = None) -> None:
        from rich.console import Console

        self._console = Console(width=CAPTURE_WIDTH, force_terminal=True) if capture else Console()
        self._capture = capture
        self._scene = Scene()

    @contextlib.contextmanager
    def showing(self, scene: Scene) -> Iterator[None]:
        """Draw the scene while the block runs."""
        from rich.live import Live

        self._scene = scene
        with Live(
            get_renderable=lambda: picture(scene, self._console.width),
            console=self._console,
            refresh_per_second=8,
        ):
            yield

    def update(self) -> None:
        """The screen redraws by itself."""

    def snapshot(self) -> None:
        """Save the screen, if it is to be captured."""
        if self._capture is None:
            return
        from rich.console import Console

        canvas = Console(
            record=True, width=CAPTURE_WIDTH, force_terminal=True, color_system="truecolor", file=StringIO()
        )
        canvas.print(picture(self._scene, canvas.width))
        # Without the fonts that rich would have a reader's browser load from a server.
        drawn = re.sub(r"@font-face \{.*?\}\s*", "", canvas.export_svg(title="velo demo"), flags=re.DOTALL)
        Path(self._capture).write_text(drawn, encoding="utf-8")

    def goodbye(self, line: str, *commands: str) -> None:
        """The closing message."""
        from rich.syntax import Syntax
        from rich.text import Text

        self._console.print(Text(line, "bold" if commands else "bright_black"))
        for command in commands:
            self._console.print(Syntax(f"  {command}", "bash", background_color="default", word_wrap=True))


# --- drawing ----------------------------------------------------------------------------------------


def picture(scene: Scene, width: int) -> RenderableType:
    """The whole screen as of now, for a terminal of that width."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    title = Text.assemble(
        ("velostream ", "bold cyan"), ("streaming SQL on Spark: tables that stay right", "bright_black")
    )
    left = _pnl(scene) if scene.last.pnl else _creation(scene)
    if not scene.last.held:
        return Group(title, Text(), left)
    if width < WIDE:
        return Group(title, Text(), left, _prices(scene), _figures(scene), Text(), _events(scene))
    grid = Table.grid(padding=(0, 2))
    grid.add_row(left, _symbols(scene))
    return Group(title, Text(), grid, _figures(scene), Text(), _events(scene))


def _creation(scene: Scene) -> RenderableType:
    from rich.console import Group
    from rich.syntax import Syntax
    from rich.text import Text

    parts: list[RenderableType] = [
        Text.assemble(("✓ ", "green"), (what, "bright_black")) for what in list(scene.done)
    ]
    creating = scene.creating
    if creating is not None:
        what, text = creating
        elapsed = time.monotonic() - scene.started
        first = "" if scene.done else ", Spark is starting beside it"
        parts.append(_spinning(f"{what}{first}  [bright_black]{elapsed:.0f} s[/]"))
        parts.append(Syntax(text, "sql", background_color="default", padding=(1, 2)))
    return Group(*parts)


_spinners: dict[str, Any] = {}


def _spinning(text: str) -> RenderableType:
    """One spinner for all frames: a new one per frame would never turn."""
    from rich.spinner import Spinner

    spinner = _spinners.setdefault("dots", Spinner("dots", style="cyan"))
    spinner.update(text=text)
    turning: RenderableType = spinner
    return turning


def _pnl(scene: Scene) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    last = scene.last
    table = Table(box=box.ROUNDED, border_style="bright_black", title="pnl", title_style="bold")
    table.title_justify = "left"
    table.add_column("trader", min_width=7)
    table.add_column("risk", justify="right")
    table.add_column("positions", justify="right")
    table.add_column("cost", justify="right", min_width=13)
    table.add_column("P&L", justify="right", min_width=15)
    for user, row in sorted(last.pnl.items()):
        table.add_row(
            row.name,
            str(row.risk_tolerance),
            str(row.positions),
            f"{row.cost:,.2f}",
            _moving(scene, user, row.pnl),
        )
    for _ in range(_TRADERS - len(last.pnl)):
        table.add_row(Text("deleted", "red italic") if scene.glowing(DELETED) else "", "", "", "", "")
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

    last = scene.last
    table = Table(box=box.ROUNDED, border_style="bright_black", title_style="bold", title_justify="left")
    table.title = "symbol_metadata + user_positions"
    table.add_column("symbol")
    table.add_column("risk", justify="right")
    table.add_column("last", justify="right")
    table.add_column("held", justify="right", min_width=9)
    for symbol, *_ in SYMBOLS:
        row = last.symbols.get(symbol)
        glow = "black on yellow" if scene.glowing(symbol) else ""
        table.add_row(
            Text(symbol, glow),
            Text(str(row.risk_rating) if row else "", glow if symbol == RATED else ""),
            Text(f"{row.last_price:,.2f}" if row else "", glow if symbol == PRICED else ""),
            f"{last.held.get(symbol, 0):,}",
        )
    return table


def _prices(scene: Scene) -> RenderableType:
    """The symbols in a line or two, where there is no room for their table."""
    from rich.text import Text

    line = Text()
    for symbol, *_ in SYMBOLS:
        row = scene.last.symbols.get(symbol)
        if row is not None:
            line.append(f"{symbol} {row.last_price:,.2f}", "black on yellow" if scene.glowing(symbol) else "")
            line.append(f" r{row.risk_rating}  ", "bright_black")
    return line


def _figures(scene: Scene) -> RenderableType:
    from rich.text import Text

    figures, last = scene.last.stats, scene.last
    versions = ", ".join(f"{name} v{number:,}" for name, number in last.versions.items())
    return Text.assemble(
        (f"{figures.records_in:,}", "bold"),
        f" trades, {figures.rate_in:,.0f}/s, {last.groups} groups, {figures.latency_ms:,.0f} ms a batch; ",
        (versions, "bright_black"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _events(scene: Scene) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    return Group(
        *(
            Text.assemble(
                (f"{at:5.1f} s  ", "bright_black"),
                ("✓ " if good else "", "green"),
                (text, "green" if good else ""),
            )
            for at, text, good in list(scene.events)
        )
    )
