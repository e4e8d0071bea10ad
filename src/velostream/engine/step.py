"""What a job does between start and stop: its inputs, its plan and its output, opened together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from velostream.connectors.capabilities import BadRecords, Counted, Explaining, Widening
from velostream.engine.bad_rows.data_errors import data_error, maybe_data_error
from velostream.engine.bad_rows.dead_letters import keep_as_told
from velostream.engine.bad_rows.failures import explained
from velostream.engine.bad_rows.located import located
from velostream.engine.inputs.consistency import VERSION, newest_cut
from velostream.engine.inputs.tables import TableSource
from velostream.engine.outputs.outputs import TableOutput
from velostream.errors import (
    InternalError,
    JobError,
    LaggingReaderError,
    RowError,
    SourceLostError,
    VelostreamError,
)
from velostream.model.health import worst
from velostream.model.jobs import BatchFigures
from velostream.plan.plans import RowsPlan
from velostream.spark.failures import cause_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from velostream.engine.bad_rows.dead_letters import DeadLetters
    from velostream.engine.bad_rows.search import Culprit
    from velostream.engine.inputs.inputs import Inputs
    from velostream.engine.kinds.pipeline import Pipeline, Progress
    from velostream.engine.outputs.outputs import JobOutput
    from velostream.model.changes import BadRow, Commit, Offset, SourceOffsets
    from velostream.model.options import CommonOptions
    from velostream.serving.table.table import Table

log = structlog.get_logger("velostream.job")

_MOST_LOSSES = 10
"""How often a step is done again at once because the records that it reads are deleted meanwhile."""


class ColumnsWidenedError(JobError):
    """Not a failure: discovered columns became wider, and the job is opened again with them at once."""

    code = "job.columns_widened"
    retryable = True


@dataclass
class ContinuousWork:
    """The work of a continuous statement; see `job.Work` for the contract of its methods."""

    job: str
    pipeline: Pipeline
    inputs: Inputs
    output: JobOutput
    options: CommonOptions
    dead_letters: DeadLetters
    remember: Callable[[str, pa.Schema], None]
    """Makes wider columns of a source durable."""
    patient: bool = True
    """Whether to wait until tables over one source are at the same position of it."""
    every: float = 0.0
    """Least seconds between two changes that readers see: EMIT CHANGES EVERY."""
    _apart: bool = False

    def offsets(self) -> SourceOffsets | None:
        """What the output records."""
        return self.output.offsets

    def latest(self, after: SourceOffsets | None) -> SourceOffsets | None:
        """The newest position of each input; tables that a stream is joined to move with the stream."""
        stream = self.pipeline.stream
        if stream is not None and after is not None:
            offset = self.inputs.all[stream].source.latest(after.get(stream))
            if offset == after.get(stream):
                return after
            tables = {key: item for key, item in self.inputs.all.items() if key != stream}
            return {stream: offset} | {k: item.source.latest(after.get(k)) for k, item in tables.items()}
        self._apart = False
        candidates = {
            key: item.source.candidates(_of(after, key))
            if isinstance(item.source, TableSource)
            else [item.source.latest(_of(after, key))]
            for key, item in self.inputs.all.items()
        }
        cut = newest_cut(candidates)
        if cut is None and self.patient:
            self._apart = True
            return after
        return cut if cut is not None else {key: offsets[0] for key, offsets in candidates.items()}

    def advance(self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit) -> BatchFigures:
        """Fast first; when a row cannot be decoded or computed, again and with care for that row.

        Records that are gone by the time they are read are told, and the rest of the range is read anew.
        """
        sources = [item.source for item in self.inputs.all.values()]
        for attempt in range(_MOST_LOSSES):
            try:
                return self._advance(start, end, commit)
            except Exception as exc:
                error = explained(exc, sources)
                again = isinstance(error, SourceLostError) and attempt + 1 < _MOST_LOSSES
                if not again or not self._note_lost(start, end):
                    if error is exc:
                        raise
                    raise error from exc
                log.info("again", job=self.job, reason=error.message)
        raise InternalError("an attempt at a step neither worked nor failed")

    def _note_lost(self, start: SourceOffsets | None, end: SourceOffsets) -> bool:
        """Whether a source finds that more of the range is gone than it knew."""
        found = [
            Explaining.of(item.source).note_lost(_of(start, key), end[key])
            for key, item in self.inputs.all.items()
        ]
        return any(found)

    def _advance(self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit) -> BatchFigures:
        passed = self.pipeline.stream is not None and self.options.join_on_timeout == "skip"
        try:
            if (passed and not self.inputs.tables_loaded()) or self._nothing_new(start, end):
                progress, bad = self.pipeline.pass_over(commit), 0
            else:
                again = self.dead_letters.left_over(self.job, f"{start}")
                fast = None if again else self._fast(start, end, commit)
                progress, bad = fast or self._with_care(start, end, commit, again=again)
        except LaggingReaderError as exc:
            if not isinstance(self.output, TableOutput) or not self.pipeline.anew:
                raise JobError(
                    f'"{self.job}" was stopped for too long: {exc.message}',
                    hint="begin anew, into another sink, with CREATE OR REPLACE",
                ) from exc
            progress, bad = self._rebuild(end, commit, exc), 0
        except InternalError as exc:
            # A step that answers differently over the same rows: ties, or doubles added in another order.
            if not self.pipeline.derived or not self.pipeline.anew:
                raise
            progress, bad = self._rebuild(end, commit, exc), 0
        self.dead_letters.committed()
        bad += self.output.take_refused()
        self.pipeline.feed.forget_excluded()
        # Sources count what they hand over; of tables only what reaches the query is known.
        counts = [
            Counted.of(item.source).count(_of(start, key), end[key]) for key, item in self.inputs.all.items()
        ]
        known = [count for count in counts if count is not None]
        rows_in = sum(known) if known else progress.rows_in
        by_partition: dict[str, int] = {}
        for key, item in self.inputs.all.items():
            by_partition |= Counted.of(item.source).counts(_of(start, key), end[key])
            item.source.commit(end[key])
        looked_up, misses = self.pipeline.feed.take_figures()
        return BatchFigures(rows_in, progress.rows_out, bad, looked_up, misses, by_partition)

    def _nothing_new(self, start: SourceOffsets | None, end: SourceOffsets) -> bool:
        """Whether only what the versions contain moved on, and not the tables themselves."""
        if start is None or start.keys() != end.keys():
            return False
        return all(
            isinstance(item.source, TableSource) and start[key].get(VERSION) == end[key].get(VERSION)
            for key, item in self.inputs.all.items()
        )

    def _rebuild(self, end: SourceOffsets, commit: Commit, why: VelostreamError) -> Progress:
        log.warning("rebuild", job=self.job, reason=why.message)
        return self.pipeline.rebuild(end, commit)

    def _fast(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit
    ) -> tuple[Progress, int] | None:
        """As if every row were good; None when one is not."""
        if self.pipeline.lost:
            return None
        for key, item in self.inputs.all.items():
            since = start.get(key) if start else None
            if BadRecords.of(item.source).has_bad_rows(since, end[key]):
                return None
            if item.columns is None and Widening.of(item.source).new_columns(since, end[key]):
                return None
        try:
            return self.pipeline.advance(start, end, commit, careful=False), 0
        except Exception as exc:
            if not maybe_data_error(exc):
                raise
            log.info("again", job=self.job, reason=cause_of(exc))
            return None

    def _with_care(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, again: bool = False
    ) -> tuple[Progress, int]:
        """Bad rows are kept before the batch is committed, so that a crash between the two loses none.

        `again`: an earlier attempt kept some. A row that can be computed by now must not be in both places.
        """
        self._widen(start, end)
        bad = list(self._bad_rows(start, end))
        self._keep("decoding", bad, start, end)
        within = self.pipeline.feed.computing_errors(start, end)
        self._keep("deriving", within, start, end)
        bad += within
        aside = 0
        if again:
            came, _ = self._set_aside(start, end)
            self._keep("computing", came, start, end)
            aside = len(came)
            self.dead_letters.settle(self.job, f"{start}")
        if self.pipeline.lost:
            return self._around_overflow(start, end, commit, len(bad) + aside)
        # Keys are computed again from all rows, where a row that was set aside long ago may be met again.
        for since in (start, None):
            try:
                return self.pipeline.advance(start, end, commit, careful=True), len(bad) + aside
            except Exception as exc:
                if not maybe_data_error(exc):
                    raise
                cause = exc
            came, found = self._set_aside(since, end)
            if since is start:
                self._keep("computing", came, start, end)
                aside += len(came)
            if since is None and not found and self.pipeline.groups:
                return self._around_overflow(start, end, commit, len(bad) + aside)
            if since is None and not found and data_error(cause):
                raise RowError(
                    f"a row cannot be computed: {cause_of(cause)}",
                    hint="guard the expression: try_cast, try_divide, nullif, coalesce",
                ) from cause
            if since is None and not found:
                raise cause
        return self.pipeline.advance(start, end, commit, careful=True), len(bad) + aside

    def _set_aside(self, since: SourceOffsets | None, end: SourceOffsets) -> tuple[list[BadRow], bool]:
        """Leave the rows after `since` that cannot be computed out of all that follows.

        Returns those of them that came, and whether there were any.
        """
        culprits = list(self.pipeline.culprits(since, end))
        for key, _, culprit in culprits:
            self.pipeline.feed.excluded.setdefault(key, set()).add(culprit.position)
        return self._found(end, [(key, culprit) for key, came, culprit in culprits if came]), bool(culprits)

    def _found(self, end: SourceOffsets, culprits: list[tuple[str, Culprit]]) -> list[BadRow]:
        """Rows that cannot be computed, as their source knows them."""
        rows = []
        for key in {key for key, _ in culprits}:
            item = self.inputs.all.get(key)
            mine = [culprit for each, culprit in culprits if each == key]
            if item is None or not item.source.traits.positioned:
                rows += [culprit.row for culprit in mine]
            else:
                rows += located(item, mine, end[key])
        return rows

    def _around_overflow(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, bad: int
    ) -> tuple[Progress, int]:
        """Rows can be computed one by one but not together: a group that cannot be computed is lost.

        A sum of it outgrew its type, or what the query makes of its sums fails.
        """
        kept: list[BadRow] = []

        def keep(groups: list[BadRow]) -> None:
            self._keep("summing", groups, start, end)
            kept.extend(groups)

        progress = self.pipeline.advance_around_overflow(start, end, commit, keep)
        return progress, bad + len(kept)

    def _widen(self, start: SourceOffsets | None, end: SourceOffsets) -> None:
        for key, item in self.inputs.all.items():
            wider = Widening.of(item.source).widen(start.get(key) if start else None, end[key])
            if wider is not None and wider != item.schema:
                self.remember(key, wider)
                raise ColumnsWidenedError(
                    f"{item.description} has wider columns now", detail=f"{key}: {wider}"
                )

    def _bad_rows(self, start: SourceOffsets | None, end: SourceOffsets) -> Iterator[BadRow]:
        for key, item in self.inputs.all.items():
            for row in BadRecords.of(item.source).bad_rows(start.get(key) if start else None, end[key]):
                yield replace(row, input=key)

    def _keep(self, stage: str, rows: list[BadRow], start: SourceOffsets | None, end: SourceOffsets) -> None:
        """Do with bad rows what the statement says."""
        keep_as_told(self.dead_letters, self.job, self.options, stage, f"{start}", rows)

    def keep_untimely(self, rows: list[BadRow], stage: str, start: SourceOffsets | None) -> None:
        """Do with rows that are late, or have no time, what the statement says."""
        if stage == "late" and self.options.on_error != "fail":
            self.dead_letters.keep_now(self.job, "late", f"{start}", rows)
        else:
            self._keep(stage, rows, start, {})

    def replay_end(self, have: SourceOffsets) -> SourceOffsets:
        """Where a step goes that takes records in anew, and nothing that is new."""
        return have

    def lags(self) -> dict[str, int]:
        """How far each partition of the inputs is ahead of the output, as far as sources can tell."""
        have = self.offsets() or {}
        found: dict[str, int] = {}
        for key, item in self.inputs.all.items():
            found |= Counted.of(item.source).lags(have.get(key, {}))
        return found

    def settled_at(self) -> int | None:
        """The event time before which nothing is computed again; None where there is no such."""
        return None

    def state(self) -> Sequence[Table]:
        """The table of groups, or of the last row of each key: what comes is merged into its rows."""
        plain = isinstance(self.pipeline.plan, RowsPlan)
        return () if plain or not isinstance(self.output, TableOutput) else (self.output.table,)

    def settled(self) -> bool:
        """Whether every input has shown all there is, at positions that belong together."""
        return not self._apart and all(item.source.settled() for item in self.inputs.all.values())

    def health(self) -> tuple[str, str | None]:
        """The worst of the inputs."""
        return worst(item.source.health() for item in self.inputs.all.values())

    def finished(self, offsets: SourceOffsets) -> bool:
        """Whether every input but the tables that a stream is joined to is bounded and read to its end."""
        stream = self.pipeline.stream
        return all(
            item.source.finished(offsets[key])
            for key, item in self.inputs.all.items()
            if stream is None or key == stream
        )

    @property
    def poll_seconds(self) -> float:
        """The shortest interval that an input asks for."""
        return min(
            (item.source.traits.poll_interval.total_seconds() for item in self.inputs.all.values()),
            default=0.1,
        )

    @property
    def trigger_seconds(self) -> float:
        """The statement's `trigger.interval`, or what EMIT says where that is longer."""
        return max(self.options.trigger_interval.total_seconds(), self.every)

    def close(self) -> None:
        """Close inputs and output."""
        for item in self.inputs.all.values():
            item.source.close()
        self.output.close()


def _of(offsets: SourceOffsets | None, key: str) -> Offset | None:
    return offsets.get(key) if offsets is not None else None
