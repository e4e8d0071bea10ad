"""The prompt of `velo sql`: statements typed one by one, with history, completion and colours."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.styles import Style
from pygments.lexers.sql import SqlLexer

from velostream import __version__
from velostream.cli.commands.listings import brief
from velostream.cli.commands.sql import print_events
from velostream.cli.diagnostics import exit_code_of, say, whisper
from velostream.cli.output import Output
from velostream.cli.prompt.completion import SqlCompleter
from velostream.cli.prompt.target import Session
from velostream.model.private import make_folder
from velostream.secrets import redact_draft

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent

    from velostream.cli.invocation import Invocation

HELP = """\
Statements end with a semicolon; Tab completes, arrow keys find earlier ones.
  SELECT …;                 over tables: an answer now; over a source: live until Ctrl-C
  CREATE TABLE … AS …;      a table that is maintained continuously
  EXPLAIN …;                how a statement would be maintained
  SHOW TABLES;  SHOW JOBS;  SHOW FUNCTIONS;  SHOW PROPERTIES FOR file;
  \\d  tables   \\d NAME  columns   \\j  jobs   help   \\q  quit (or Ctrl-D)"""

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

_QUIT = {"\\q", "quit", "exit", "quit;", "exit;"}


class Repl:
    """Reads, runs, prints, until the user leaves."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._settings = invocation.settings()
        self._output = Output(invocation.output_format)
        self._session = Session(self._settings, resume=True, tell=whisper)

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
        if text.rstrip(";").strip().lower() in {"help", "\\h", "\\?", "?"}:
            say(HELP)
            return
        stop = Event()
        try:
            meant = expanded(text)
            events = self._session.answers(meant, follow=True, stop=stop)
            listing = meant.rstrip("; ").upper() in {"SHOW JOBS", "SHOW TABLES"}
            print_events(events, self._output, stop, brief if listing else lambda rows: rows)
        except KeyboardInterrupt:
            whisper("\nstopped")
        except Exception as exc:
            exit_code_of(exc, debug=self._invocation.debug)
        finally:
            stop.set()


def expanded(text: str) -> str:
    """What a short command stands for."""
    command, _, argument = text.rstrip(";").strip().partition(" ")
    if command == "\\j":
        return "SHOW JOBS"
    if command in {"\\d", "\\dt"}:
        return f"DESCRIBE {argument}" if argument.strip() else "SHOW TABLES"
    return text


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
    if stripped.startswith("\\") or stripped.lower() in _QUIT | {"help", "?"}:
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
