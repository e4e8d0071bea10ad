"""`velo connector`: a package for a connector of one's own."""

from __future__ import annotations

from pathlib import Path

import click

from velostream.cli.actions import Actions
from velostream.cli.diagnostics import say, whisper
from velostream.cli.invocation import Invocation, common


@click.group("connector", cls=Actions)
@click.pass_context
@common
def connector_command(invocation: Invocation, context: click.Context) -> None:
    """Make a package for a connector of your own."""
    context.obj = invocation


@connector_command.command("new")
@click.argument("name")
@click.option("--into", type=click.Path(path_type=Path), metavar="FOLDER", help="Where to. [velostream-NAME]")
@common
def new_command(invocation: Invocation, name: str, into: Path | None) -> None:
    """Make a package for the connector NAME, whose addresses begin with NAME://.

    It has a source, a sink, typed properties, an entry point, and tests that run the contract which every
    connector keeps. It works as it is, over a folder of JSON lines: put your own system into it.
    """
    from velostream.devtools.new_connector import new_connector

    folder = into if into is not None else Path(f"velostream-{name}")
    for path in new_connector(name, folder):
        whisper(str(path))
    say(f'connector "{name}" made; next: cd {folder} && pip install -e ".[test]" && pytest -q')
