"""`velo plan`: what running a file would change in the data directory, without changing anything."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import click

from velostream.cli.diagnostics import report, say
from velostream.cli.invocation import Invocation, common
from velostream.cli.output import Output
from velostream.cli.statements_file import read_script

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from velostream.config import Settings
    from velostream.model.statements import Statement
    from velostream.runtime.changing.plan import Step

CHANGES = 5
"""The exit code of --exit-code where running the file would change something."""


@click.command("plan")
@click.argument("file")
@click.option("--exit-code", is_flag=True, help=f"Exit with {CHANGES} if something would change.")
@common
def plan_command(invocation: Invocation, file: str, exit_code: bool) -> int:
    """Show what running FILE would change: what is created, replaced and rebuilt, what stays as it is.

    Nothing is started and nothing is changed, also while another process holds the data directory. Exits with
    1 if running the file would be refused.
    """
    text, name = read_script(file)
    settings = invocation.settings()
    statements = _statements(text, name, settings, as_json=invocation.format == "json")
    if statements is None:
        return 1
    steps = _steps(statements, settings)
    Output(invocation.output_format).write(_rows(steps))
    refused = [step.error for step in steps if step.error is not None]
    report(refused, as_json=invocation.format == "json")
    say(f"{name}: {_summary(steps)}")
    if refused:
        return 1
    return CHANGES if exit_code and any(step.action.changes for step in steps) else 0


def _statements(text: str, name: str, settings: Settings, *, as_json: bool) -> Sequence[Statement] | None:
    """The statements of the file; None where it has errors, which are reported."""
    from velostream.connectors.registry import default_registry
    from velostream.location import SourceText
    from velostream.runtime.catalog.catalog import remembered
    from velostream.sql.check import check_script

    catalog = remembered(settings.data_dir)
    checked = check_script(SourceText(text, name), catalog, default_registry(), environment=os.environ)
    if not checked.errors:
        return checked.statements
    report(checked.errors, as_json=as_json)
    say(f"{name}: {len(checked.errors)} error{'s' if len(checked.errors) > 1 else ''}")
    return None


def _steps(statements: Sequence[Statement], settings: Settings) -> list[Step]:
    from velostream.runtime.catalog.catalog import remembered
    from velostream.runtime.changing.plan import plan_of
    from velostream.runtime.datadir import DataDirectory
    from velostream.serving.table.store import TableStore

    catalog = remembered(settings.data_dir)
    editions = {entry.name: entry.edition for entry in catalog}
    with TableStore(DataDirectory(settings.data_dir).tables, read_only=True, editions=editions) as store:
        return plan_of(catalog, store, statements)


def _rows(steps: Sequence[Step]) -> pa.Table:
    import pyarrow as pa

    columns = {
        name: [str(getattr(step, name)) for step in steps] for name in ("action", "kind", "name", "detail")
    }
    return pa.table(columns, schema=pa.schema([(name, pa.string()) for name in columns]))


def _summary(steps: Sequence[Step]) -> str:
    refused = sum(step.error is not None for step in steps)
    counts = Counter(step.action for step in steps if step.action.changes and step.error is None)
    told = [f"{count} to {action}" for action, count in counts.items()]
    return ", ".join([*told, *([f"{refused} refused"] if refused else [])]) or "nothing to do"
