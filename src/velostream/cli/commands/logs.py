"""`velo logs`: the log of a data directory, for people."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from velostream.cli.diagnostics import whisper
from velostream.cli.invocation import Invocation, common
from velostream.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_COLOURS = {"debug": "2", "info": "36", "warning": "33", "error": "31", "critical": "31"}
_KNOWN = ("timestamp", "level", "event", "logger", "job", "exception")
POLL_SECONDS = 0.2


@click.command("logs")
@click.option("-f", "--follow", is_flag=True, help="Go on as lines are written, until Ctrl-C.")
@click.option("--job", metavar="NAME", help="Only lines about this job.")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@common
def logs_command(invocation: Invocation, follow: bool, job: str | None, lines: int | None) -> None:
    """Show what happened in the data directory: starts, changes of state, failures."""
    settings = invocation.settings()
    folder = settings.data_dir / "logs"
    path = folder / "velostream.log"
    if not settings.data_dir.is_dir() and not follow:
        raise ConfigError(f"data directory {settings.data_dir} does not exist", hint="give --data-dir")
    as_json = invocation.output_format == "json"
    everything = list(_written(folder))
    written = [line for line in everything if _wanted(line, job)]
    if not written:
        _tell_nothing(settings.data_dir, job, everything)
    for line in written if lines is None else written[len(written) - min(lines, len(written)) :]:
        _print(line, as_json)
    if follow:
        for line in appended(path):
            if _wanted(line, job):
                _print(line, as_json)


def _tell_nothing(data_dir: Path, job: str | None, lines: Iterable[str]) -> None:
    """Say why there is nothing to show, also where it is waited for."""
    if not data_dir.is_dir():
        whisper(f"there is no data directory {data_dir} yet: this waits for one; --data-dir names another")
    elif job is None:
        whisper(f"nothing was logged in {data_dir} yet")
    else:
        known = {str(found) for found in (_parsed(line).get("job") for line in lines) if found}
        near = did_you_mean(job, known)
        whisper(f'nothing was logged about job "{job}" yet' + (f"; {near}" if near else ""))


def _written(folder: Path) -> Iterator[str]:
    """All lines of the log, the oldest file first."""
    files = (
        sorted(folder.glob("velostream.log.*"), key=lambda p: -int(p.suffix[1:])) if folder.is_dir() else []
    )
    for path in [*files, folder / "velostream.log"]:
        if path.exists():
            yield from path.read_text(encoding="utf-8", errors="replace").splitlines()


def appended(path: Path) -> Iterator[str]:
    """Lines written from now on; a log that was rotated goes on in the new file."""
    status = _status(path)
    position, identity = (status.st_size, status.st_ino) if status else (0, None)
    rest = ""
    while True:
        status = _status(path)
        if status is not None:
            if status.st_ino != identity or status.st_size < position:
                identity, position, rest = status.st_ino, 0, ""
            if status.st_size > position:
                text, position = _read_from(path, position)
                *whole, rest = (rest + text).split("\n")
                yield from whole
        time.sleep(POLL_SECONDS)


def _status(path: Path) -> os.stat_result | None:
    """The file's status; None also while a log is being rotated."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _read_from(path: Path, position: int) -> tuple[str, int]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            file.seek(position)
            return file.read(), file.tell()
    except FileNotFoundError:
        return "", position


def _wanted(line: str, job: str | None) -> bool:
    if job is None:
        return bool(line.strip())
    name = str(_parsed(line).get("job", ""))
    return name == job or name.partition("-")[2] == job


def _parsed(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {"event": line}
    return value if isinstance(value, dict) else {"event": line}


def _print(line: str, as_json: bool) -> None:
    if as_json:
        click.echo(line)
        return
    entry = _parsed(line)
    level = str(entry.get("level", ""))
    at = str(entry.get("timestamp", ""))[:23].replace("T", " ")
    job = f"{entry['job']}: " if entry.get("job") else ""
    more = {key: value for key, value in entry.items() if key not in _KNOWN and value is not None}
    rest = " ".join(f"{key}={value}" for key, value in more.items())
    click.echo(
        f"{_paint(at, '2')} {_paint(level.ljust(7), _COLOURS.get(level, ''))} {job}{entry.get('event', '')}"
        + (f" {_paint(rest, '2')}" if rest else "")
    )
    if entry.get("exception"):
        click.echo(f"{' ' * 32}{_raised(str(entry['exception']))}")
    sys.stdout.flush()


def _raised(trace: str) -> str:
    """What a traceback ends with; of a failure in Java its root cause, without stacks and calls of py4j."""
    _, of_java, told = trace.rpartition("py4j.protocol.")
    if of_java:
        from velostream.spark.messages import root_cause

        return root_cause(told.partition(": ")[2])
    return trace.strip().splitlines()[-1]


def _paint(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if style and sys.stdout.isatty() else text
