"""`velo tables`, `jobs`, `describe` and `explain`: queries with a command of their own."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import click

from velostream.cli.diagnostics import whisper
from velostream.cli.invocation import Invocation, common
from velostream.cli.output import Output
from velostream.cli.prompt.target import Session
from velostream.sql.types import quote

if TYPE_CHECKING:
    import pyarrow as pa


_RARE = frozenset(
    {
        "state_rows",
        "state_bytes",
        "state_growth",
        "late_rows",
        "lookup_misses",
        "bad_rows",
        "errors",
        "restarts",
    }
)
"""Columns that are shown to people only when they are not all zero."""
NOTHING_YET = {"SHOW TABLES": "no tables yet", "SHOW JOBS": "no jobs yet"}
"""What people are told where a list has no rows."""


@click.command("tables")
@click.option("--verify", is_flag=True, help="Check every byte of the tables' files instead.")
@common
def tables_command(invocation: Invocation, verify: bool) -> int:
    """List the tables with rows, key, version, source, health and size.

    With --verify, list their files and what is wrong with them; exits with 1 when something is damaged.
    """
    if verify:
        from velostream.cli.commands.verify import verify_tables

        return verify_tables(invocation)
    rows = ask(invocation, "SHOW TABLES")
    if invocation.output_format == "table":
        rows = brief(rows)
    _print(invocation, rows, NOTHING_YET["SHOW TABLES"])
    return 0


@click.command("jobs")
@click.option("--partitions", is_flag=True, help="List the partitions that jobs read instead.")
@common
def jobs_command(invocation: Invocation, partitions: bool) -> None:
    """List the jobs with their state and statistics."""
    rows = ask(invocation, "SHOW JOBS")
    if partitions:
        _print(invocation, by_partition(rows), "no job reads partitions")
        return
    if invocation.output_format == "table":
        rows = brief(rows)
    _print(invocation, rows, NOTHING_YET["SHOW JOBS"])


def by_partition(jobs: pa.Table) -> pa.Table:
    """One row per job and partition."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = jobs.column("partitions").combine_chunks()
    whose = jobs.column("name").take(pc.list_parent_indices(found))
    parts = pa.Table.from_struct_array(pc.list_flatten(found))
    return parts.add_column(0, "job", whose)


@click.command("describe")
@click.argument("name")
@common
def describe_command(invocation: Invocation, name: str) -> None:
    """Show the columns of NAME: a table, stream, source or view."""
    quoted = quote(name)
    _print(invocation, ask(invocation, f"DESCRIBE {quoted}"), f'"{name}" has no columns yet')


@click.command("explain")
@click.argument("statement")
@common
def explain_command(invocation: Invocation, statement: str) -> None:
    """Show how STATEMENT would be maintained: inputs, steps, state and emission."""
    rows = ask(invocation, f"EXPLAIN {statement}")
    if invocation.output_format == "table":
        for line in rows.column(0).to_pylist():
            click.echo(line)
    else:
        _print(invocation, rows, "")


def ask(invocation: Invocation, text: str) -> pa.Table:
    """The rows of one statement."""
    from velostream.runtime.answers.events import Answer

    with Session(invocation.settings()) as session:
        (answer,) = session.answers(text, follow=False, stop=Event())
        assert isinstance(answer, Answer)
        return answer.result.table


def brief(rows: pa.Table) -> pa.Table:
    """The columns that fit a screen: without ids beside names, and without columns of no interest."""
    import pyarrow.compute as pc

    def telling(name: str) -> bool:
        values = rows.column(name).to_pylist()
        return (
            name not in ("id", "partitions")
            and any(v is not None for v in values)
            and (name not in _RARE or any(values))
        )

    keep = [name for name in rows.schema.names if telling(name) or rows.num_rows == 0]
    kept = rows.select(keep)
    if "last_updated" in keep:
        at = keep.index("last_updated")
        seconds = pc.strftime(kept.column(at), format="%Y-%m-%d %H:%M:%S")
        kept = kept.set_column(at, "last_updated", pc.utf8_slice_codeunits(seconds, 0, 19))
    return kept


def _print(invocation: Invocation, rows: pa.Table, empty: str) -> None:
    output = Output(invocation.output_format)
    if rows.num_rows == 0 and output.form == "table":
        whisper(empty)
        return
    output.write(rows)
    output.close()
