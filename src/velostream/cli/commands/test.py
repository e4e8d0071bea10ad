"""`velo test`: a user's own cases, each run in several ways against one expectation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from velostream.cli.commands.run import stopped_by_signals
from velostream.cli.diagnostics import coloured, paint, report, say, whisper
from velostream.cli.invocation import Invocation, common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.errors import VelostreamError
    from velostream.testing import Bench, Case, Outcome, Way

WAYS = ("straight", "restarted", "spread")
_GREEN, _RED, _CLEAR = "32", "1;31", "\r\x1b[K"


@click.command("test")
@click.argument("paths", nargs=-1)
@click.option(
    "--way",
    "ways",
    multiple=True,
    type=click.Choice(WAYS),
    help="Only this way; may be given several times. [all three]",
)
@click.option("-k", "name", metavar="TEXT", help="Only cases with this text in their name.")
@click.option("-x", "--exit-first", is_flag=True, help="Stop at the first case that fails.")
@common
def test_command(
    invocation: Invocation, paths: tuple[str, ...], ways: tuple[str, ...], name: str | None, exit_first: bool
) -> int:
    """Run the test cases of PATHS: files, or folders with *.velotest files. [the current folder]

    A case is SQL over test:// sources, their input rows, and the expected results. Each is run straight;
    restarted, where the database is closed and opened again at every step; and spread, where its rows are
    read from other partitions as well. The results must be the same.

    Cases run in a folder of their own: the data directory is not touched. Exits with 1 when a case fails or
    cannot be read. With --format, the outcome of each case is written to stdout.
    """
    from velostream.errors import ConfigError
    from velostream.testing import Way, find_cases

    found = find_cases(*paths)
    chosen = [case for case in found.cases if name is None or name.casefold() in case.name.casefold()]
    report(found.errors, as_json=invocation.format == "json")
    if not chosen and not found.errors:
        raise ConfigError(
            f'no case has "{name}" in its name' if name else "there are no cases in these files"
        )
    wanted = [Way(way) for way in dict.fromkeys(ways or WAYS)]
    outcomes: list[Outcome] = []
    with stopped_by_signals():
        if chosen:
            outcomes = _Tests(invocation, wanted, exit_first).run(chosen)
    _sum_up(outcomes, len(chosen), found.errors)
    _write(invocation, outcomes)
    return 0 if not found.errors and all(outcome.passed for outcome in outcomes) else 1


class _Tests:
    """A test run in progress."""

    def __init__(self, invocation: Invocation, ways: Sequence[Way], exit_first: bool) -> None:
        self._invocation = invocation
        self._ways = ways
        self._exit_first = exit_first

    def run(self, chosen: Sequence[Case]) -> list[Outcome]:
        from velostream.testing import Bench

        outcomes: list[Outcome] = []
        with Bench(self._invocation.settings()) as bench:
            self._status("starting Spark…")
            bench.start()
            for number, case in enumerate(chosen, start=1):
                done = self._case(bench, case, f"{number}/{len(chosen)}")
                outcomes += done
                if self._exit_first and not all(outcome.passed for outcome in done):
                    break
        return outcomes

    def _case(self, bench: Bench, case: Case, where: str) -> list[Outcome]:
        done: list[Outcome] = []
        for way in self._ways:
            self._status(f"{where}  {case.name} ({way})")
            outcome = bench.run(case, way)
            done.append(outcome)
            if outcome.error is not None:
                self._status("")
                say(f"{paint('failed', _RED)}  {case.name} ({way})")
                report([outcome.error], as_json=self._invocation.format == "json")
                if self._exit_first:
                    break
        self._status("")
        if all(outcome.passed for outcome in done):
            took = ", ".join(f"{outcome.way} {outcome.seconds:.1f}s" for outcome in done)
            whisper(f"{paint('ok', _GREEN)}  {case.name}  ({took})")
        return done

    def _status(self, text: str) -> None:
        """The current activity, in a line that the next one replaces."""
        if coloured():
            sys.stderr.write(f"{_CLEAR}{text[:100]}")
            sys.stderr.flush()


def _sum_up(outcomes: Sequence[Outcome], chosen: int, errors: Sequence[VelostreamError]) -> None:
    failed = {outcome.case for outcome in outcomes if not outcome.passed}
    ran = {outcome.case for outcome in outcomes}
    parts = [f"{len(ran) - len(failed)} passed"]
    if failed:
        parts.append(f"{len(failed)} failed")
    if chosen > len(ran):
        parts.append(f"{chosen - len(ran)} not run")
    if errors:
        parts.append(f"{len(errors)} error{'s' if len(errors) > 1 else ''} in case files")
    seconds = sum(outcome.seconds for outcome in outcomes)
    say(f"{chosen} case{'' if chosen == 1 else 's'}: {', '.join(parts)}, in {seconds:.1f}s")


def _write(invocation: Invocation, outcomes: Sequence[Outcome]) -> None:
    """One row for each case and way, if rows are asked for."""
    if invocation.format is None:
        return
    import pyarrow as pa

    from velostream.cli.output import Output

    columns = {
        "file": pa.array([o.case.file for o in outcomes], pa.string()),
        "line": pa.array([o.case.location.line for o in outcomes], pa.int64()),
        "case": pa.array([o.case.name for o in outcomes], pa.string()),
        "way": pa.array([str(o.way) for o in outcomes], pa.string()),
        "passed": pa.array([o.passed for o in outcomes], pa.bool_()),
        "seconds": pa.array([round(o.seconds, 3) for o in outcomes], pa.float64()),
        "error": pa.array([str(o.error) if o.error else None for o in outcomes], pa.string()),
    }
    output = Output(invocation.format)
    output.write(pa.table(columns))
    output.close()
