"""Pages whose shell blocks are pasted into real terminals, as a reader does.

A `bash` block goes to the terminal that its title names (`title="second terminal"`), or to the one without a
name. A `text` block below shows what it prints: its lines appear in that order, and `…` stands for anything.
`<kbd>Ctrl-C</kbd> in the second terminal` presses the keys there. Other blocks are for reading only.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pexpect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PATIENCE = 120.0
"""Seconds until a page gives up on what it shows: Spark may have to start on a busy machine."""
ANYWHERE = ""
"""The terminal of blocks that name none."""
_ITEM = re.compile(
    r"^```(?P<language>\w+)(?P<rest>[^\n]*)\n(?P<text>.*?)^```$"
    r"|<kbd>Ctrl-C</kbd>\s+in\s+the\s+(?P<terminal>\w+)\s+terminal",
    re.MULTILINE | re.DOTALL,
)
_TITLE = re.compile(r'title="(\w+) terminal"')
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b[@-_]")
_PROMPT = re.compile(r"⟦(\d+)⟧")
_OURS = ("VELOSTREAM_DATA_DIR", "VELOSTREAM_KAFKA", "VELOSTREAM_CONFIG", "PYTEST_")
"""Variables of the test run that a reader does not have."""
_LOOKS = {"PS1": "⟦$?⟧", "PS2": "", "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
_QUESTIONS = ('velo sql "SELECT', "velo tables", "velo jobs", "velo topic")


@dataclass(frozen=True)
class Pasted:
    """A block, and what it prints."""

    terminal: str
    text: str
    line: int
    shown: tuple[str, ...] = ()
    endless: bool = False
    """Whether it runs until Ctrl-C is pressed."""

    @property
    def question(self) -> bool:
        """Whether asking again is harmless: tables follow their sources after a moment."""
        return self.text.startswith(_QUESTIONS) and not self.endless


@dataclass(frozen=True)
class Interrupt:
    """Ctrl-C."""

    terminal: str
    line: int


def steps(markdown: str) -> list[Pasted | Interrupt]:
    """What a reader does with a page, in order."""
    found: list[Pasted | Interrupt] = []
    for item in _ITEM.finditer(markdown):
        line = markdown[: item.start()].count("\n") + 1
        if item["terminal"]:
            found.append(Interrupt(item["terminal"], line))
        elif item["language"] == "bash":
            title = _TITLE.search(item["rest"])
            found.append(Pasted(title[1] if title else ANYWHERE, item["text"], line))
        elif item["language"] == "text" and found and isinstance(found[-1], Pasted):
            found[-1] = replace(found[-1], shown=tuple(item["text"].splitlines()))
    return [
        replace(step, endless=_interrupted(found[at + 1 :], step.terminal))
        if isinstance(step, Pasted)
        else step
        for at, step in enumerate(found)
    ]


def _interrupted(later: Sequence[Pasted | Interrupt], terminal: str) -> bool:
    return next((isinstance(step, Interrupt) for step in later if step.terminal == terminal), False)


def follow(page: Path, folder: Path, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Do everything that a page says, in a folder; AssertionError tells the line where it is not so.

    `meanwhile` is called once, before Ctrl-C is pressed for the first time.
    """
    terminals: dict[str, Terminal] = {}
    interrupted = False
    try:
        for step in steps(page.read_text(encoding="utf-8")):
            where = f"{page.name}:{step.line}"
            if step.terminal not in terminals:
                terminals[step.terminal] = Terminal(folder)
            terminal = terminals[step.terminal]
            if isinstance(step, Pasted):
                terminal.paste(step, where)
                continue
            if not interrupted:
                meanwhile()
            interrupted = True
            terminal.interrupt(where)
    finally:
        for terminal in terminals.values():
            terminal.close()


class Terminal:
    """A shell in a terminal of its own, whose output is read all the time: a full one would block it."""

    def __init__(self, folder: Path) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        path = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
        self._shell = pexpect.spawn(
            "bash",
            ["--norc", "--noprofile", "--noediting"],
            cwd=str(folder),
            env={**own, **_LOOKS, "PATH": path},
            dimensions=(50, 110),
            echo=False,
            encoding="utf-8",
        )
        self._printed = ""
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._ends = 0
        self._wait(lambda: bool(_PROMPT.search(self._printed)), "the shell starts")

    def _read(self) -> None:
        with suppress(pexpect.EOF, OSError, ValueError):
            while True:
                with suppress(pexpect.TIMEOUT):
                    got = self._shell.read_nonblocking(65536, timeout=0.2)
                    with self._more:
                        self._printed += got
                        self._more.notify_all()

    def _wait(self, condition: Callable[[], bool], what: str, timeout: float = PATIENCE) -> None:
        with self._more:
            held = self._more.wait_for(condition, timeout)
        assert held, f"{what}: not after {timeout} s. Printed:\n{self.plain}"

    @property
    def plain(self) -> str:
        """What was printed since the last paste, without colours and movements of the cursor."""
        return _CONTROL.sub("", self._printed).replace("\r\n", "\n").replace("\r", "\n")

    def paste(self, step: Pasted, where: str) -> None:
        """Paste a block, wait for what it shows, and, unless it is endless, for its end."""
        deadline = time.monotonic() + PATIENCE
        while True:
            self._send(step.text)
            if step.endless:
                self._wait(lambda: self.shows(step.shown), f"{where}: {step.shown}")
                return
            self._finish(where)
            if self.shows(step.shown):
                return
            assert step.question, f"{where}: expected {step.shown}, printed:\n{self.plain}"
            assert time.monotonic() < deadline, f"{where}: expected {step.shown}, printed:\n{self.plain}"

    def shows(self, lines: Sequence[str]) -> bool:
        """Whether these lines were printed, in this order."""
        printed = iter(_squeezed(self.plain))
        wanted = [_like(line) for line in _squeezed("\n".join(lines))]
        return all(any(like.fullmatch(line) for line in printed) for like in wanted)

    def interrupt(self, where: str) -> None:
        """Press Ctrl-C, and wait for the prompt."""
        self._printed = ""
        self._shell.sendintr()
        self._wait(lambda: bool(_PROMPT.search(self._printed)), f"{where}: the end")
        assert "Traceback" not in self.plain, self.plain

    def close(self) -> None:
        """End the shell, and what runs in it."""
        with suppress(OSError):
            self._shell.sendintr()
        self._shell.close(force=True)
        self._reader.join(5)

    def _send(self, text: str) -> None:
        self._printed = ""
        self._shell.send(text)

    def _finish(self, where: str) -> None:
        self._ends += 1
        end = f"end {self._ends} of a block"
        self._shell.send(f"echo {end!r}\n")
        self._wait(lambda: end in self._printed, f"{where}: the end")
        failed = [code for code in _PROMPT.findall(self.plain) if code != "0"]
        assert not failed, f"{where}: exit code {failed[0]}, printed:\n{self.plain}"


def _squeezed(text: str) -> list[str]:
    lines = (" ".join(_PROMPT.sub(" ", line).split()) for line in text.splitlines())
    return [line for line in lines if line]


def _like(line: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in line.split("…")))
