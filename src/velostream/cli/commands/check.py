"""`velo check`: a whole file parsed, bound and planned, with all of its errors, and nothing started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from velostream.cli.diagnostics import report, say, warn, whisper
from velostream.cli.invocation import Invocation, common
from velostream.cli.script import read_script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.config import Settings
    from velostream.errors import VelostreamError
    from velostream.model.statements import Query, SourceRef, Statement


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
    statements, errors = _checked(text, name, settings)
    if connect and not errors:
        errors = [error for statement in statements for error in _reach(statement, settings)]
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
    text: str, name: str, settings: Settings
) -> tuple[Sequence[Statement], Sequence[VelostreamError]]:
    from velostream.connectors.registry import default_registry
    from velostream.errors import VelostreamError
    from velostream.location import SourceText
    from velostream.runtime.catalog.catalog import remembered
    from velostream.runtime.statements.earlier import findings
    from velostream.sql.check import check_script
    from velostream.sql.dependencies import dependency_order

    catalog = remembered(settings.data_dir)
    checked = check_script(SourceText(text, name), catalog, default_registry(), environment=os.environ)
    errors = list(checked.errors)
    if not errors:
        try:
            # As `velo run` would find it.
            ordered = dependency_order(checked.statements)
            errors += filter(None, (finding.error for finding in findings(catalog, ordered)))
        except VelostreamError as error:
            errors.append(error)
    return checked.statements, errors


def _later(statements: Sequence[Statement]) -> int:
    """Report valid statements that this version does not execute; returns their number."""
    from velostream.plan.strategy import obstacle

    found = [error for error in map(obstacle, statements) if error is not None]
    for error in found:
        place = f"{error.location}: " if error.location else ""
        warn(f"{place}{error.message}", error.hint)
    return len(found)


def _tell_plans(statements: Sequence[Statement]) -> None:
    from velostream.runtime.statements.explain import explain

    for statement in statements:
        first = " ".join(statement.text.split())
        place = f"{statement.location}: " if statement.location else ""
        click.echo(f"{place}{first[:77] + '…' if len(first) > 78 else first}")
        for line in explain(statement):
            click.echo(f"  {line}")
        click.echo()


def _reach(statement: Statement, settings: Settings) -> Sequence[VelostreamError]:
    """The errors of a statement's sources, and of the columns it uses of them."""
    from velostream.errors import SourceEmptyError, VelostreamError
    from velostream.runtime.statements.identity import quoted
    from velostream.sql.check import queries_of
    from velostream.sql.names.usage import column_errors

    errors: list[VelostreamError] = []
    for query in queries_of(statement):
        columns = {}
        for ref in query.sources:
            try:
                columns[ref.id] = _columns(ref, settings)
            except SourceEmptyError as empty:
                place = f"{ref.location}: " if ref.location is not None else ""
                warn(f"{place}{empty.message}; a job waits for its first record, which tells its columns")
            except VelostreamError as error:
                errors.append(error.at(ref.location or statement.location))
        if not errors and columns and len(columns) == len(query.sources):
            errors += [error.at(statement.location) for error in column_errors(query, columns)]
            _tell_columns(query, columns)
            for told in quoted(statement, [name for names in columns.values() for name in names]):
                warn(told)
    return errors


def _columns(ref: SourceRef, settings: Settings) -> Sequence[str]:
    import tempfile
    from pathlib import Path

    from velostream.engine.opening.connect import open_source

    with tempfile.TemporaryDirectory(prefix="velostream-check-") as folder:
        source = open_source(ref, settings, Path(folder), known=None, once=True, table=True, makes=False)
        try:
            source.check()
            return tuple(source.discover().names)
        finally:
            source.close()


def _tell_columns(query: Query, columns: dict[str, Sequence[str]]) -> None:
    for ref in query.sources:
        if ref.id in columns:
            whisper(f"{ref.uri}: {', '.join(columns[ref.id])}")
