"""`velo doctor`: is this machine ready, and if not, what to do."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from velostream.cli.diagnostics import say, whisper
from velostream.cli.invocation import Invocation, common

if TYPE_CHECKING:
    from velostream.devtools.doctor import Check


@click.command("doctor")
@click.option("--prepare", is_flag=True, help="First fetch and make what lets Spark start faster.")
@click.option(
    "--repair", is_flag=True, help="Put back what keeps the data directory from being opened; delete nothing."
)
@click.option("--deep", is_flag=True, help="Also start Spark and ask it something.")
@common
def doctor_command(invocation: Invocation, prepare: bool, repair: bool, deep: bool) -> int:
    """Check Java, Spark, jars, ports, memory and the data directory; exits with 1 when something is wrong."""
    from velostream.devtools.doctor import checks

    settings = invocation.settings()
    if prepare:
        from velostream.spark.prepare import prepare as make

        make(say=whisper)
    if repair:
        from velostream.runtime.catalog.repair import repair as put_back

        for line in put_back(settings.data_dir) or ["nothing to repair"]:
            say(line)
    missing = 0
    for check in checks(settings.data_dir, master=settings.master, deep=deep):
        missing += check.required and not check.ok
        _print(check, as_json=invocation.output_format == "json")
    if missing:
        say(f"{missing} thing{'s' if missing > 1 else ''} to fix")
    return 1 if missing else 0


def _print(check: Check, *, as_json: bool) -> None:
    if as_json:
        found = {"name": check.name, "ok": check.ok, "required": check.required}
        click.echo(json.dumps(found | {"detail": check.detail, "hint": check.hint}))
        return
    mark, style = ("✓", "32") if check.ok else ("✗", "31") if check.required else ("–", "33")
    mark = f"\x1b[{style}m{mark}\x1b[0m" if sys.stdout.isatty() else mark
    click.echo(f"{mark} {check.name.ljust(16)} {check.detail}")
    if check.hint:
        click.echo(f"  {' ' * 16} {check.hint}")
