"""`velo check`: a whole file parsed, bound and planned, with all of its errors, and nothing started."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import click

from velostream.cli.diagnostics import report, say, warn, whisper
from velostream.cli.invocation import Invocation, common
from velostream.cli.statements_file import read_script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.config import Settings
    from velostream.errors import VelostreamError
    from velostream.model.statements import SourceRef, Statement


@click.command("check")
@click.argument("file")
@click.option("--connect", is_flag=True, help="Reach every source and check the columns too.")
@click.option("-v", "--verbose", is_flag=True, help="Show how each statement would be maintained.")
@common
def check_command(invocation: Invocation, file: str, connect: bool, verbose: bool) -> int:
    """Check FILE without starting anything: syntax, names, properties, types and plan.

    Statements that differ from those that the data directory has are errors, as in velo run. Prints every
    error and exits with 1 if there is one. Columns that only a source knows are taken on
    trust unless --connect is given.
    """
    text, name = read_script(file)
    settings = invocation.settings()
    sources = Sources(settings) if connect else None
    statements, errors = _checked(text, name, settings, sources)
    if verbose:
        _tell_plans(statements)
    report(errors, as_json=invocation.format == "json")
    if errors:
        say(f"{name}: {len(errors)} error{'s' if len(errors) > 1 else ''}")
        return 1
    for told in (warning for statement in statements for warning in statement.warnings):
        warn(told)
    later = _later(statements)
    count = f"{len(statements)} statement{'' if len(statements) == 1 else 's'}"
    say(f"{name}: {count} checked, no errors" + (f", {later} not executed in this version" if later else ""))
    return 0


def _checked(
    text: str, name: str, settings: Settings, sources: Sources | None
) -> tuple[Sequence[Statement], Sequence[VelostreamError]]:
    from velostream.connectors.registry import default_registry
    from velostream.errors import VelostreamError
    from velostream.location import SourceText
    from velostream.runtime.catalog.catalog import remembered
    from velostream.runtime.statements.earlier import altered_in_file, findings
    from velostream.sql.check import check_script
    from velostream.sql.dependencies import dependency_order

    catalog = remembered(settings.data_dir)
    bind = partial(check_script, SourceText(text, name), catalog, default_registry(), environment=os.environ)
    checked = bind()
    errors = list(checked.errors) or list(filter(None, map(altered_in_file, checked.statements)))
    if not errors:
        try:
            # As `velo run` would find it.
            ordered = dependency_order(checked.statements)
            errors += filter(None, (finding.error for finding in findings(catalog, ordered)))
        except VelostreamError as error:
            errors.append(error)
    if sources is None:
        return checked.statements, errors
    # Sources tell more of what is wrong about columns, and are asked whatever else is wrong.
    connected = bind(discover=sources.columns)
    if not checked.errors:
        return connected.statements, [*errors, *connected.errors]
    return connected.statements, connected.errors


class Sources:
    """What the sources of a file tell of themselves; each is asked once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._asked: dict[object, Sequence[str] | None] = {}

    def columns(self, ref: SourceRef) -> Sequence[str] | None:
        """The columns of a source; None while it holds no record to tell them from.

        Raises why it cannot be reached, once for a source that was created under a name.
        """
        key = (ref.uri.text, ref.declared_in, tuple(sorted(ref.properties.items())))
        if key not in self._asked:
            if ref.declared_in is not None:
                self._asked[key] = None
            self._asked[key] = self._told(ref)
        return self._asked[key]

    def _told(self, ref: SourceRef) -> Sequence[str] | None:
        from velostream.engine.opening.connect import columns_of
        from velostream.errors import SourceEmptyError

        try:
            columns = columns_of(ref, self._settings)
        except SourceEmptyError as empty:
            place = f"{ref.location}: " if ref.location is not None else ""
            warn(f"{place}{empty.message}; a job waits for its first record, which tells its columns")
            return None
        whisper(f"{ref.uri}: {', '.join(columns)}")
        return columns


def _later(statements: Sequence[Statement]) -> int:
    """Report valid statements that this version does not execute; returns their number."""
    from velostream.plan.strategy import obstacle

    found = [error for error in map(obstacle, statements) if error is not None]
    for error in found:
        place = f"{error.location}: " if error.location else ""
        warn(f"{place}{error.message}", error.hint)
    return len(found)


def _tell_plans(statements: Sequence[Statement]) -> None:
    from velostream.runtime.answers.explain import explain

    for statement in statements:
        first = " ".join(statement.text.split())
        place = f"{statement.location}: " if statement.location else ""
        click.echo(f"{place}{first[:77] + '…' if len(first) > 78 else first}")
        for line in explain(statement):
            click.echo(f"  {line}")
        click.echo()
