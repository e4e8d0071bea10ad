"""REPLAY DEAD LETTERS: selects letters, has their jobs process them again, and reports the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from velostream.engine.bad_rows.letter import KEY, NAME, Letter
from velostream.engine.replay.intent import Pending
from velostream.engine.replay.step import Outcome, replay
from velostream.errors import JobError, ReplayError, VelostreamError
from velostream.model.jobs import JobState
from velostream.model.statements import Query
from velostream.runtime.answers.result import Result

if TYPE_CHECKING:
    from velostream.engine.bad_rows.dead_letters import DeadLetters
    from velostream.model.statements import ReplayDeadLetters
    from velostream.runtime.answers.query import AdHoc
    from velostream.runtime.catalog.catalog import Catalog
    from velostream.runtime.jobs.job import Job
    from velostream.runtime.jobs.jobs import Jobs
    from velostream.runtime.statements.dml import Params

_SCHEMA = pa.schema(
    [
        ("job", pa.string()),
        ("tried", pa.int64()),
        ("taken", pa.int64()),
        ("left", pa.int64()),
        ("reason", pa.string()),
    ]
)


@dataclass(frozen=True)
class Replays:
    """Executes REPLAY DEAD LETTERS."""

    catalog: Catalog
    jobs: Jobs
    letters: DeadLetters | None
    adhoc: AdHoc

    def run(self, statement: ReplayDeadLetters, params: Params) -> Result:
        """A row for each job; raises an error where no letter could be tried at all."""
        if self.letters is None:
            raise ReplayError("dead letters are replayed by the process that runs their jobs")
        by_job: dict[str, list[Letter]] = {}
        for letter in sorted(self._chosen(statement, params, self.letters), key=lambda each: each.number):
            by_job.setdefault(letter.job, []).append(letter)
        rows: list[tuple[str, int, int, int, str | None]] = []
        errors: list[VelostreamError] = []
        for name, letters in by_job.items():
            try:
                outcome = self._replayed(name, letters, self.letters)
            except VelostreamError as error:
                errors.append(error)
                rows.append((name, 0, 0, len(letters), error.message))
                continue
            tried, taken = len(outcome.taken) + len(outcome.failing), len(outcome.taken)
            reasons = [*outcome.failing.values(), *outcome.impossible.values()]
            if not tried:
                errors.append(_impossible(name, reasons[0]))
            rows.append((name, tried, taken, len(letters) - taken, reasons[0] if reasons else None))
        if errors and len(errors) == len(rows):
            raise errors[0].at(statement.location)
        columns = zip(*rows, strict=True) if rows else [()] * len(_SCHEMA)
        arrays = [pa.array(column, f.type) for column, f in zip(columns, _SCHEMA, strict=True)]
        return Result(pa.table(arrays, schema=_SCHEMA), engine="velostream")

    def _chosen(self, statement: ReplayDeadLetters, params: Params, letters: DeadLetters) -> list[Letter]:
        tree = exp.Select(expressions=[exp.column(KEY)]).from_(exp.to_table(NAME))
        if statement.where is not None:
            tree = tree.where(statement.where.copy(), copy=False)
        found = self.adhoc.answer(Query(tree, tables=(NAME,)), params).arrow()
        return list(Letter.all(letters.chosen(found[KEY].to_pylist())))

    def _replayed(self, name: str, letters: list[Letter], shelf: DeadLetters) -> Outcome:
        job = self._running(name)
        pending = Pending(self.jobs.folder(job.id), job.id, shelf)
        clock = self.jobs.site.clock
        return job.requests.ask(job, lambda work: replay(work, job.id, letters, pending, clock))

    def _running(self, name: str) -> Job:
        entry = self.catalog.get(name)
        if entry is None or entry.job is None:
            raise ReplayError(
                f'job "{name}", which the letters came from, does not exist any more',
                hint=f"create it again, or have them deleted: DELETE FROM dead_letters WHERE job = '{name}'",
            )
        job = self.jobs.get(entry.job)
        if job is None:
            raise ReplayError(
                f'job "{name}" does not run here',
                hint="replay from the program that runs it, or while `velo run` does",
            )
        if job.state in (JobState.PAUSED, JobState.STOPPED, JobState.FAILED):
            raise JobError(f'job "{name}" is {job.state}', hint=f"start it first: RESUME JOB {name}")
        return job


def _impossible(name: str, reason: str) -> ReplayError:
    return ReplayError(
        f'dead letters of "{name}" cannot be replayed: {reason}',
        hint="they stay until they are deleted, or their retention is over",
    )
