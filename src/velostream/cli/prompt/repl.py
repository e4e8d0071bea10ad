"""The prompt of `velo sql`: statements typed one by one, with history, completion and colours."""

from __future__ import annotations

import os
import threading
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.styles import Style
from pygments.lexers.sql import SqlLexer

from velostream import __version__
from velostream.cli.commands.listings import NOTHING_YET, brief
from velostream.cli.commands.sql import print_events
from velostream.cli.diagnostics import exit_code_of, say, whisper
from velostream.cli.output import Output
from velostream.cli.prompt.completion import SqlCompleter
from velostream.cli.prompt.target import Session, changes
from velostream.disk.private import make_folder
from velostream.errors import ConfigError, did_you_mean
from velostream.secrets import redact_draft
from velostream.sql.types import quote

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent

    from velostream.cli.invocation import Invocation

HELP = """\
Statements end with a semicolon; Tab completes, arrow keys find earlier ones.
  SELECT …;                 over tables: an answer now; over a source: live until Ctrl-C
  SELECT … EMIT CHANGES;    over tables, too: live until Ctrl-C
  CREATE TABLE … AS …;      a table that is maintained continuously
  EXPLAIN …;                how a statement would be maintained
  SHOW TABLES;  SHOW JOBS;  SHOW FUNCTIONS;  SHOW PROPERTIES FOR file;
Commands need no semicolon.
  \\d  tables   \\d NAME  columns   \\j  jobs   \\x [on|off]  rows as blocks of lines, or as a table again
  \\watch [SECONDS]  the last statement again every 2 seconds, until Ctrl-C
  \\help  this text   \\q  quit (or Ctrl-D)"""

STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "pygments.keyword": "bold ansiblue",
        "pygments.name.builtin": "ansicyan",
        "pygments.literal.string": "ansigreen",
        "pygments.literal.number": "ansimagenta",
        "pygments.comment": "ansibrightblack",
        "completion-menu.meta.completion": "bg:ansibrightblack ansiwhite",
    }
)

_HELP = ("\\help", "\\h", "\\?", "help", "?")
_COMMANDS = ("\\d", "\\dt", "\\j", "\\x", "\\watch", "\\help", "\\q")
WATCH_SECONDS = 2.0
"""How often `\\watch` repeats a statement, unless it is told."""
_QUIT = {"\\q", "quit", "exit", "quit;", "exit;"}


class Repl:
    """Reads, runs, prints, until the user leaves."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._settings = invocation.settings()
        self._output = Output(invocation.output_format)
        self._session = Session(self._settings, resume=True, tell=whisper)
        self._last: str | None = None
        """The last statements that were run, for `\\watch`."""

    def run(self) -> int:
        """The prompt; 0 when the user leaves."""
        whisper(f"velostream {__version__}, {self._settings.data_dir.absolute()}; help, \\q quits")
        prompt: PromptSession[str] = PromptSession(
            history=history(),
            lexer=PygmentsLexer(SqlLexer),
            completer=SqlCompleter(self._session.relations),
            auto_suggest=AutoSuggestFromHistory(),
            key_bindings=_bindings(),
            multiline=True,
            style=STYLE,
            complete_while_typing=True,
            complete_in_thread=True,
            prompt_continuation=lambda width, *_: "… ".rjust(width),
        )
        with self._session:
            while True:
                try:
                    text = prompt.prompt([("class:prompt", "velo> ")]).strip()
                except KeyboardInterrupt:
                    continue
                except EOFError:
                    return 0
                if text.lower() in _QUIT:
                    return 0
                if text:
                    self.execute(text)

    def close(self) -> None:
        """Give back what the prompt holds: the data directory, or the connection to its holder."""
        self._session.close()

    def execute(self, text: str) -> None:
        """Run the typed text; errors are reported, and the prompt comes back."""
        stop = Event()
        try:
            meant = self._command(text, stop) if is_command(text) else text
            if meant is not None:
                self._last = meant
                self._run(meant, stop, follow=True)
        except KeyboardInterrupt:
            whisper("\nstopped")
        except Exception as exc:
            exit_code_of(exc, debug=self._invocation.debug)
        finally:
            stop.set()

    def _run(self, text: str, stop: Event, *, follow: bool) -> None:
        events = self._session.answers(text, follow=follow, stop=stop)
        what = text.rstrip("; ").upper()
        shape = brief if what in NOTHING_YET else lambda rows: rows
        print_events(events, self._output, stop, shape, empty=NOTHING_YET.get(what))

    def _command(self, text: str, stop: Event) -> str | None:
        """Carry out a command; returns the statement that it stands for, if it is one."""
        name, _, argument = text.strip().rstrip(";").strip().partition(" ")
        name, argument = name.lower(), argument.strip()
        if name == "\\j":
            return "SHOW JOBS"
        if name in {"\\d", "\\dt"}:
            named = argument if argument.startswith("`") else quote(argument)
            return f"DESCRIBE {named}" if argument else "SHOW TABLES"
        if name == "\\x":
            self._expand(argument.lower())
            whisper(f"rows are shown as {'blocks of lines' if self._output.expanded else 'a table'}")
        elif name == "\\watch":
            self._watch(argument, stop)
        elif name in _HELP:
            say(HELP)
        else:
            raise ConfigError(
                f"{name} is not a command", hint=did_you_mean(name, _COMMANDS) or "\\help lists them"
            )
        return None

    def _expand(self, argument: str) -> None:
        """Show rows as blocks, as a table, or, without an argument, as they were not shown until now."""
        if argument not in ("", "on", "off"):
            raise ConfigError(f'"{argument}" is neither on nor off', hint="\\x, \\x on or \\x off")
        self._output.expanded = argument == "on" or (not argument and not self._output.expanded)

    def _watch(self, argument: str, stop: Event) -> None:
        """Run the last statement again and again, until Ctrl-C."""
        if self._last is None:
            raise ConfigError("there is no statement to repeat yet", hint="run one first, then \\watch")
        if changes(self._last):
            raise ConfigError("the last statement changes something, so it is not repeated")
        try:
            seconds = float(argument or WATCH_SECONDS)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < threading.TIMEOUT_MAX:
            raise ConfigError(f'"{argument}" is not a number of seconds', hint="\\watch 5")
        while not stop.is_set():
            if self._output.pretty:
                click.clear()
            whisper(f"{datetime.now():%H:%M:%S}, every {seconds:g} s; Ctrl-C ends")
            self._run(self._last, stop, follow=False)
            stop.wait(seconds)


def is_command(text: str) -> bool:
    """Whether the text is a command of the prompt and not SQL."""
    stripped = text.strip()
    return stripped.startswith("\\") or stripped.rstrip("; ").lower() in {"help", "?"}


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if complete(buffer.text) or not buffer.text.strip():
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


def complete(text: str) -> bool:
    """Whether Enter runs the text: a command, or statements up to a semicolon outside of quotes."""
    stripped = text.strip()
    if is_command(text) or stripped.lower() in _QUIT:
        return True
    from velostream.location import SourceText
    from velostream.sql.text.script import split

    script = split(SourceText(text), os.environ)
    return len(script.pieces) > 1 and not script.pieces[-1].text.strip()


class DiscreetHistory(FileHistory):
    """A history file that stores nothing that appears to contain a secret."""

    def store_string(self, string: str) -> None:
        """See prompt_toolkit."""
        if redact_draft(string) == string:
            super().store_string(string)


def history() -> History:
    """The history of this user, private; in memory where no file can be written."""
    given = os.environ.get("XDG_STATE_HOME")
    home = Path(given) if given and Path(given).is_absolute() else Path.home() / ".local" / "state"
    path = home / "velostream" / "history"
    try:
        make_folder(path.parent)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return DiscreetHistory(str(path))
