"""The entry point of `velo`. It imports almost nothing, so that Ctrl-C is quiet from the first moment."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command that the process was started with, and exit with its code."""
    sys.meta_path.insert(0, _WithoutPandas())
    # Characters that a terminal cannot show are escaped, as
    # Python does on stderr; `Output` decides for itself.
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    _leave(code)


class _WithoutPandas:
    """Keeps pyarrow from importing pandas, half a second, for conversions that do not need it.

    Nothing of ours uses it here, and Spark's Python workers are processes of their own.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """See importlib: None leaves a module to the other finders; an error says that it does not exist."""
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=name)


def run(arguments: Sequence[str]) -> int:
    """Run one command; every expected failure becomes a message on stderr and an exit code."""
    from velostream.cli.diagnostics import exit_code_of, own_warnings

    own_warnings()
    try:
        from velostream.cli.command_table import velo

        # Not click's own `main`, which prints an empty line when it is interrupted.
        with velo.make_context("velo", list(arguments)) as context:
            code = velo.invoke(context)
    except BaseException as exc:
        return exit_code_of(exc, debug="--debug" in arguments, as_json=_json(arguments))
    return code if isinstance(code, int) else 0


def _json(arguments: Sequence[str]) -> bool:
    return "--format=json" in arguments or "--format json" in " ".join(arguments)


def _leave(code: int) -> NoReturn:
    """Exit without waiting for threads that an interrupt left behind: Spark may still be starting in one.

    Java ends by itself when this process does.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # A closed pipe: its reader has seen enough.
            continue
    os._exit(code)
