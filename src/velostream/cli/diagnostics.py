"""Errors on stderr: message, location, detail, hint; a traceback only when asked for."""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from velostream.errors import InternalError, VelostreamError, did_you_mean
from velostream.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Iterable

USAGE = 2
INTERRUPTED = 130
TERMINATED = 143

_RED, _CYAN, _BOLD, _DIM, _YELLOW = "31", "36", "1", "2", "33"


class Terminated(KeyboardInterrupt):
    """SIGTERM: stop as for Ctrl-C, with the exit code that service managers know."""


def exit_code_of(exc: BaseException, *, debug: bool = False, as_json: bool = False) -> int:
    """Report whatever ended a command, and return its exit code."""
    import click

    if isinstance(exc, click.exceptions.Exit):
        return exc.exit_code
    if isinstance(exc, SystemExit):
        return exc.code if isinstance(exc.code, int) else USAGE
    if isinstance(exc, Terminated):
        return TERMINATED
    if isinstance(exc, KeyboardInterrupt | click.Abort | EOFError):
        return INTERRUPTED
    if isinstance(exc, BrokenPipeError):
        _discard_output()
        return 0
    if isinstance(exc, click.exceptions.NoArgsIsHelpError):
        # A group of commands alone, as `velo` alone, asks what there is.
        click.echo(exc.format_message())
        return 0
    if isinstance(exc, click.ClickException):
        _usage(exc)
        return USAGE
    return _failure(exc, debug=debug, as_json=as_json)


def _failure(exc: BaseException, *, debug: bool, as_json: bool) -> int:
    if debug:
        import traceback

        say("".join(traceback.format_exception(exc)).rstrip(), _DIM)
    if isinstance(exc, VelostreamError):
        report([exc], as_json=as_json)
        return exc.exit_code
    if isinstance(exc, OSError):
        what = f'"{exc.filename}": ' if exc.filename else ""
        fail(f"{what}{(exc.strerror or str(exc)).lower()}")
        return USAGE if isinstance(exc, PermissionError | FileNotFoundError) else 1
    from velostream.spark.failures import translate

    error = translate(exc)
    if not isinstance(error, InternalError):
        report([error], as_json=as_json)
        return error.exit_code
    fail(error.message, hint=None if debug else "--debug shows where; please report it")
    return 1


def _usage(exc: object) -> None:
    import click

    assert isinstance(exc, click.ClickException)
    context = getattr(exc, "ctx", None)
    message = exc.format_message()
    message = (message[:1].lower() + message[1:]).removesuffix(".")
    hint = None
    if isinstance(exc, click.NoSuchOption):
        message = f'no option "{exc.option_name}"'
        known = [name for name in _options(context) if name.startswith("--")]
        hint = _OTHERS.get(((context.info_name or "") if context else "", exc.option_name))
        hint = hint or did_you_mean(exc.option_name, known)
    elif context is not None:
        hint = f"{context.command_path} --help shows how it is used"
    fail(message, hint=hint)


_STATEMENT = 'the statement itself is the argument: velo sql "SELECT 1"'
_OTHERS = {
    **dict.fromkeys((("sql", each) for each in ("-c", "-e", "-q", "--command", "--execute")), _STATEMENT),
    **dict.fromkeys(
        (("sql", each) for each in ("-f", "-i", "--file")),
        "velo run app.sql keeps a file running; velo sql - < app.sql runs its statements once",
    ),
    ("topic", "--topic"): "name it after the action: velo topic show orders",
}
"""Options of other programs, by command, and what to write here."""


def _options(context: object) -> Iterable[str]:
    import click

    if isinstance(context, click.Context):
        for parameter in context.command.get_params(context):
            yield from parameter.opts


def report(errors: Iterable[VelostreamError], *, as_json: bool = False) -> None:
    """Print errors, one after the other."""
    for error in errors:
        if as_json:
            print(json.dumps(error.as_dict()), file=sys.stderr)
            continue
        lines = str(error).splitlines() or [""]
        place = str(error.location) if error.location is not None else ""
        head = lines[0].removeprefix(f"{place}: ") if place else lines[0]
        prefix = paint(f"{place}: ", _BOLD) if place else ""
        _write(f"{paint('error: ', f'{_BOLD};{_RED}')}{prefix}{head}")
        _rest(lines[1:], caret=error.location is not None)


def _rest(lines: list[str], *, caret: bool) -> None:
    for number, line in enumerate(lines):
        if caret and number == 1:
            gutter, bar, marks = line.partition("| ")
            _write(f"{paint(gutter + bar, _DIM)}{paint(marks, f'{_BOLD};{_RED}')}")
        elif line.startswith("hint: "):
            _write(paint("hint: ", _CYAN) + line.removeprefix("hint: "))
        else:
            _write(line)


def fail(message: str, hint: str | None = None) -> None:
    """Report an error that is no VelostreamError: usage, or the operating system's."""
    _write(f"{paint('error: ', f'{_BOLD};{_RED}')}{message}")
    if hint:
        _write(paint("hint: ", _CYAN) + hint)


def warn(message: str, hint: str | None = None) -> None:
    """Report something that does not stop anything."""
    _write(f"{paint('note: ', _YELLOW)}{message}")
    if hint:
        _write(paint("hint: ", _CYAN) + hint)


def caution(message: str) -> None:
    """Report something that works now but may not forever."""
    _write(f"{paint('warning: ', f'{_BOLD};{_YELLOW}')}{message}")


def own_warnings() -> None:
    """Show warnings of ours as ours; those of libraries as Python does."""
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **given: Any) -> None:
        if category.__module__.startswith("velostream."):
            caution(str(message))
        else:
            shown(message, category, *rest, **given)

    warnings.showwarning = show


def say(message: str, style: str = "") -> None:
    """Print a progress message."""
    _write(paint(message, style) if style else message)


def whisper(message: str) -> None:
    """Print a less important progress message."""
    _write(paint(message, _DIM))


def coloured() -> bool:
    """Whether stderr supports colours."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str) -> str:
    """The text in a colour, on a terminal."""
    return f"\x1b[{style}m{text}\x1b[0m" if coloured() and text else text


def _write(line: str) -> None:
    print(redact(line), file=sys.stderr, flush=True)


def _discard_output() -> None:
    """The reader of our output is gone: write nothing more, not even at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
