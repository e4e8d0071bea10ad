"""`velo demo`: tables that move while you watch, and follow when their sources change."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from velostream.cli.commands.run import closing, stopped_by_signals
from velostream.cli.diagnostics import whisper
from velostream.cli.invocation import Invocation, common
from velostream.devtools.demo import story
from velostream.devtools.demo.scene import Scene, reading
from velostream.devtools.demo.screen import Plain, Screen
from velostream.disk.private import make_folder
from velostream.errors import DeadlineError, VelostreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from velostream.devtools.demo.accounts import Accounts
    from velostream.runtime.instance import Instance

PATIENCE_SECONDS = 120.0
"""Seconds until the demo gives up on a number to follow; a busy machine is slow, not broken."""


@click.command("demo")
@click.option("--fast", is_flag=True, help="Go on as soon as the numbers have followed.")
@click.option(
    "--kafka", is_flag=True, help="Write the trades to a topic of a real Kafka broker, and read it."
)
@click.option("--postgres", is_flag=True, help="Keep the profiles in a real PostgreSQL, and follow it.")
@click.option("--capture", metavar="FILE", hidden=True, help="Also save the screen as SVG.")
@common
def demo_command(
    invocation: Invocation, fast: bool, kafka: bool, postgres: bool, capture: str | None
) -> None:
    """Watch tables move: a trading story with nothing to install, in under a minute.

    Generated trades, a CSV of reference data and profiles in memory are joined into a profit and loss
    table. The demo then edits the CSV and deletes a profile, and the numbers follow. With --kafka the trades
    come from a broker that the demo starts, and fetches from Maven the first time. With --postgres the
    profiles are a table of a PostgreSQL that the demo starts, if one is installed, and are changed with psql.
    """
    folder = _folder(invocation)
    screen = Screen(capture) if sys.stdout.isatty() or capture else Plain()
    with stopped_by_signals():
        Demo(invocation, folder, screen, fast=fast, kafka=kafka, postgres=postgres).run()


def _folder(invocation: Invocation) -> Path:
    """The folder of the demo, which stays afterwards to try things; emptied before each demo."""
    from velostream.config import cache_home
    from velostream.runtime.socket.client import held

    if invocation.data_dir is not None:
        return Path(invocation.data_dir).absolute().parent
    folder = cache_home() / "demo"
    if held(folder / "data"):
        return Path(tempfile.mkdtemp(prefix="velostream-demo-"))
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    return folder


class Demo:
    """One run of the demo."""

    def __init__(
        self,
        invocation: Invocation,
        folder: Path,
        screen: Screen | Plain,
        *,
        fast: bool,
        kafka: bool = False,
        postgres: bool = False,
    ) -> None:
        self._invocation = invocation
        self._folder = folder
        self._data = Path(invocation.data_dir) if invocation.data_dir else folder / "data"
        self._screen = screen
        self._fast = fast
        self._kafka = kafka
        self._postgres = postgres
        self._scene = Scene()

    def run(self) -> None:
        """Run it."""
        from velostream.runtime.instance import Instance

        settings = self._invocation.settings(data_dir=self._data)
        make_folder(self._folder)
        story.write_reference(self._folder)
        started = time.monotonic()
        with self._trades() as trades, self._accounts() as accounts:
            database = Instance(settings)
            with closing(database):
                with self._screen.showing(self._scene), self._read_beside(database):
                    self._create(database, trades, accounts, started)
                    self._watch(10)
                    self._edit_price()
                    self._watch(9)
                    self._edit_rating()
                    self._watch(9)
                    self._delete(database, accounts)
                    self._watch(7)
                self._screen.goodbye("stopping…")
        self._farewell()

    def _trades(self) -> contextlib.AbstractContextManager[str]:
        """The source of the trades, for as long as the demo lasts."""
        if not self._kafka:
            return contextlib.nullcontext(story.GENERATED)
        from velostream.devtools.demo.trades import traded

        return traded(self._folder, whisper)

    def _accounts(self) -> contextlib.AbstractContextManager[Accounts | None]:
        """The PostgreSQL with the profiles, where the demo has one."""
        if not self._postgres:
            return contextlib.nullcontext()
        from velostream.devtools.demo.accounts import kept

        return kept(whisper)

    def _create(self, database: Instance, trades: str, accounts: Accounts | None, started: float) -> None:
        threading.Thread(target=_quietly, args=(database.spark,), daemon=True).start()
        for number, (what, text) in enumerate(
            story.statements(self._folder, trades, accounts.uri if accounts is not None else None)
        ):
            self._scene.create(what, text)
            database.sql(text)
            self._scene.created(what)
            if number == 0:
                self._scene.event(
                    f"the first table moves, {time.monotonic() - started:.1f} s after the command"
                )
        self._scene.event(f"all tables move, {time.monotonic() - started:.1f} s after the command")

    @contextlib.contextmanager
    def _read_beside(self, database: Instance) -> Iterator[None]:
        """Read the tables ten times a second in a thread of its own, while statements run in this one."""
        ended = threading.Event()

        def read() -> None:
            while not ended.wait(0.1):
                with contextlib.suppress(VelostreamError):
                    self._scene.update(reading(database))
                self._screen.update()

        thread = threading.Thread(target=read, name="demo", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(5)

    # --- the scenes ---------------------------------------------------------------------------------

    def _watch(self, seconds: float) -> None:
        """Show the tables for a while."""
        time.sleep(1.0 if self._fast else seconds)

    def _edit_price(self) -> None:
        before = self._scene.last.holding(story.PRICED)
        with self._following(
            story.PRICED, lambda: self._scene.last.counts_with(story.PRICED, story.NEW_PRICE)
        ) as told:
            story.write_reference(self._folder, price=story.NEW_PRICE)
            told.append(
                f"{story.REFERENCE} edited: {story.PRICED} {story.OLD_PRICE} → {story.NEW_PRICE}, "
                f"{before} traders hold it"
            )

    def _edit_rating(self) -> None:
        before = self._scene.last.positions()
        with self._following(story.RATED, lambda: self._scene.last.positions() < before) as told:
            story.write_reference(self._folder, price=story.NEW_PRICE, rating=story.NEW_RATING)
            told.append(
                f"{story.REFERENCE} edited: {story.RATED} risk {story.OLD_RATING} → {story.NEW_RATING}, "
                "too risky for some: their positions leave"
            )

    def _delete(self, database: Instance, accounts: Accounts | None) -> None:
        name = self._scene.last.name(story.DELETED)
        with self._following(story.DELETED, lambda: self._scene.last.name(story.DELETED) is None) as told:
            if accounts is not None:
                told.append(f'psql -c "{story.DELETE_ACCOUNT}": {name} leaves')
                accounts.server.psql(story.DELETE_ACCOUNT)
            else:
                told.append(f"{story.DELETE}: {name} leaves")
                database.sql(story.DELETE)

    @contextlib.contextmanager
    def _following(self, touched: str, followed: Callable[[], bool]) -> Iterator[list[str]]:
        """Change a source, then show the tables until the numbers have followed."""
        told: list[str] = []
        started = time.monotonic()
        yield told
        self._scene.event(told[0])
        self._scene.mark(touched)
        while not followed():
            if time.monotonic() - started > PATIENCE_SECONDS:
                raise DeadlineError(
                    f"the tables did not follow within {PATIENCE_SECONDS:.0f} s",
                    detail=told[0],
                    hint=f"velo logs --data-dir {self._data}",
                )
            time.sleep(0.05)
        self._scene.mark(touched)
        self._scene.event(f"followed in {time.monotonic() - started:.1f} s", good=True)
        self._screen.snapshot()

    def _farewell(self) -> None:
        data = str(self._data)
        with contextlib.suppress(ValueError):
            data = f"~/{self._data.relative_to(Path.home())}"
        option = f"--data-dir {data}"
        self._screen.goodbye(
            "Everything is still there. Try next:",
            f'velo sql {option} "SELECT name, pnl FROM pnl ORDER BY pnl DESC"',
            f"velo sql {option}",
            f'velo explain {option} "CREATE TABLE big AS SELECT symbol, MAX(price) AS top '
            'FROM datagen://trades GROUP BY symbol"',
        )


def _quietly(start: Callable[[], object]) -> None:
    """Start Spark in parallel to the first statement, which reports failures."""
    with contextlib.suppress(VelostreamError):
        start()
