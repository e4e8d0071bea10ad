"""`velo sql`: one text of statements, or a prompt."""

from __future__ import annotations

import re
import sys
import time
from contextlib import closing
from decimal import Decimal
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from velostream.cli.diagnostics import caution, say, whisper
from velostream.cli.durations import duration
from velostream.cli.invocation import Invocation, common
from velostream.cli.limit import Limit
from velostream.cli.output import Output
from velostream.cli.prompt.target import Session
from velostream.cli.statements_file import read_stdin
from velostream.errors import ConfigError, DeadlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from datetime import timedelta

    import pyarrow as pa

    from velostream.runtime.answers.events import AnswerEvent


@click.command("sql")
@click.argument("statement", required=False)
@click.option(
    "--once", is_flag=True, help="Read what a source has now, or write it with INSERT INTO, and end."
)
@click.option(
    "--for", "for_", callback=duration, metavar="TIME", help="Follow a source for this long, such as 30s."
)
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="The value of :NAME. 7, 1.50, true and null are what they look like, all else is text; '7' is text.",
)
@common
def sql_command(
    invocation: Invocation, statement: str | None, once: bool, for_: timedelta | None, params: tuple[str, ...]
) -> int | None:
    """Run STATEMENT and print its rows; without one, open a prompt.

    A SELECT over a source runs until Ctrl-C, --for or --once ends it; one with LIMIT ends by itself. --for
    counts from when it reads its source, or begins to wait for it; if it never read, the exit code is 4. "-"
    reads statements from standard input. Tables of a directory that no process holds are read without
    starting Spark.
    """
    if statement is None and sys.stdin.isatty():
        from velostream.cli.prompt.repl import Repl

        if params:
            raise ConfigError("--param needs a statement", hint='velo sql "SELECT :n + 1" --param n=7')
        return Repl(invocation).run()
    text = _readable(read_stdin() if statement in (None, "-") else str(statement))
    values = parameters(params)
    output = Output(invocation.output_format)
    stop, limit = Event(), Limit(for_)
    limit.over = stop.set
    with Session(invocation.settings(), tell=whisper) as session:
        events = session.answers(text, values or None, follow=not once, stop=stop, once=once)
        print_events(events, output, stop, begin=limit.begin)
        left = session.unfinished()
        if left:
            names = ", ".join(left)
            whisper(f"nothing keeps {names} up to date from now on: velo run does, and a prompt (velo sql)")
    limit.end()
    output.close()
    return None


def _readable(text: str) -> str:
    if not text.strip():
        raise ConfigError("there is no statement", hint='velo sql "SELECT 1"')
    _refuse_other(text.strip())
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"the statement has characters that the locale ({sys.getfilesystemencoding()}) does not know",
            hint="use a UTF-8 locale: LC_ALL=C.UTF-8 velo sql …",
        ) from None
    return text


def _refuse_other(text: str) -> None:
    """Refuse what is no SQL: a file's name, and commands that belong to the prompt."""
    if re.fullmatch(r"\S+\.sql", text):
        raise ConfigError(
            f'"{text}" is a file, and no statement',
            hint=f"velo run {text} keeps it running; velo sql - < {text} runs its statements once",
        )
    if text.startswith("\\") or text.rstrip("; ").lower() in ("help", "?", "quit", "exit"):
        raise ConfigError(
            f"{text.split(maxsplit=1)[0]} belongs to the prompt, which velo sql alone opens",
            hint="from the command line: velo tables, velo jobs, velo describe NAME, velo --help",
        )


def parameters(given: Iterable[str]) -> dict[str, Any]:
    """The values of `--param name=value`, typed by their form."""
    values: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip().removeprefix(":")
        if not equals or not name:
            raise ConfigError(f'--param "{text}" is not name=value', hint="write --param symbol=AAPL")
        if name in values:
            raise ConfigError(f'--param "{name}" is given twice')
        values[name] = _typed(value)
    return values


def _typed(text: str) -> Any:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text.lower() in {"null", "true", "false"}:
        return {"null": None, "true": True, "false": False}[text.lower()]
    # A leading zero means a code of digits, such as a postcode.
    if re.fullmatch(r"-?(0|[1-9]\d*)", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"-?(0|[1-9]\d*)\.\d+", text, re.ASCII):
        return Decimal(text)
    if re.fullmatch(r"-?\d+(\.\d+)?[eE][+-]?\d+", text, re.ASCII):
        return float(text)
    return text


def print_events(
    events: Generator[AnswerEvent],
    output: Output,
    stop: Event,
    shape: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    begin: Callable[[], None] = lambda: None,
    empty: str | None = None,
) -> None:
    """Write results as they arrive; a grouped SELECT over a source is drawn live on a terminal.

    `shape` prepares results for people, who read `empty` instead of a table without rows; `begin` is called
    when a SELECT begins to follow, or to wait for its source. Raises DeadlineError when it still waited when
    `stop` was set. However it ends, the work behind the events has been stopped when this returns.
    """
    with closing(events):
        _print_all(events, output, stop, shape, begin, empty)


def _print_all(
    events: Iterator[AnswerEvent],
    output: Output,
    stop: Event,
    shape: Callable[[pa.Table], pa.Table],
    begin: Callable[[], None],
    empty: str | None,
) -> None:
    from velostream.cli.prompt.live import patiently, show
    from velostream.runtime.answers.events import Answer, Awaiting, Following

    started, waits = time.monotonic(), None
    patient = patiently(events)
    for event in patient:
        if isinstance(event, Awaiting):
            waits = event.reason
            begin()
            whisper(waits)
        if isinstance(event, Following):
            begin()
            show(event, patient, output, stop)
            return
        if isinstance(event, Answer):
            result = event.result
            if result.message:
                say(result.message)
            for warning in result.warnings:
                caution(warning)
            if output.pretty and empty is not None and not result.table.num_rows:
                whisper(empty)
            elif not result.message and result.table.num_columns:
                took = time.monotonic() - started
                output.write(shape(result.table) if output.pretty else result.table)
                if output.pretty:
                    whisper(count_text(result.table.num_rows, took))
        started = time.monotonic()
    if waits is not None:
        raise DeadlineError(f"the SELECT did not start within the time: {waits}")


def count_text(rows: int, seconds: float) -> str:
    """`3 rows in 12 ms`."""
    took = f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
    return f"{rows:,} row{'' if rows == 1 else 's'} in {took}"
