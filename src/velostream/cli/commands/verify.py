"""`velo tables --verify`: verifies every byte of the tables, and says what to do about damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.cli.diagnostics import report, whisper
from velostream.cli.output import Output
from velostream.cli.prompt.target import Session
from velostream.errors import CorruptDataError

if TYPE_CHECKING:
    import pyarrow as pa

    from velostream.cli.invocation import Invocation
    from velostream.serving.durable.verification import TableReport


def verify_tables(invocation: Invocation) -> int:
    """List every file with its state; the exit code says whether anything is damaged."""
    with Session(invocation.settings()) as session:
        reports = session.verify()
    if not reports:
        whisper("no tables yet")
        return 0
    output = Output(invocation.output_format)
    output.write(_rows(reports))
    output.close()
    damaged = [each for each in reports if not each.good]
    report(
        (CorruptDataError(f'table "{each.name}": {each.problem}', hint=each.hint) for each in damaged),
        as_json=invocation.output_format == "json",
    )
    if not damaged:
        whisper(_summary(reports))
    return 1 if damaged else 0


def _rows(reports: list[TableReport]) -> pa.Table:
    import pyarrow as pa

    files = [(each.name, file) for each in reports for file in each.files]
    return pa.table(
        {
            "table": pa.array([name for name, _ in files], pa.string()),
            "file": pa.array([file.name for _, file in files], pa.string()),
            "state": pa.array([str(file.state) for _, file in files], pa.string()),
            "records": pa.array([file.records for _, file in files], pa.int64()),
            "bytes": pa.array([file.bytes for _, file in files], pa.int64()),
            "detail": pa.array([file.detail for _, file in files], pa.string()),
        }
    )


def _summary(reports: list[TableReport]) -> str:
    files = sum(len(each.files) for each in reports)
    size = sum(file.bytes for each in reports for file in each.files)
    rows = sum(each.rows or 0 for each in reports)
    tables = f"{len(reports)} table{'s' if len(reports) > 1 else ''}"
    return f"{tables}, {rows:,} rows, {files} files, {size:,} bytes: all as written"
