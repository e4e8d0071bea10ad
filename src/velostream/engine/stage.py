"""One stage of a job: its inputs, the kind of step that its plan makes, and its output.

A stage tries a step fast, as if all rows were good, and again with care when a row cannot be decoded or
computed. Most jobs have one stage; where rows or results are kept beside the job, `stages` runs several.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from velostream.connectors.capabilities import Announcing, BadRecords, Counted, Explaining, Widening
from velostream.engine.bad_rows.data_errors import data_error, maybe_data_error
from velostream.engine.bad_rows.dead_letters import keep_as_told
from velostream.engine.bad_rows.failures import explained
from velostream.engine.bad_rows.places import located
from velostream.engine.inputs.consistency import VERSION, newest_cut
from velostream.engine.inputs.tables import TableSource
from velostream.engine.inputs.widening import ColumnsWidenedError
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
from velostream.spark.failures import cause_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from threading import Event

    import pyarrow as pa

    from velostream.engine.bad_rows.dead_letters import DeadLetters
    from velostream.engine.bad_rows.search import Culprit
    from velostream.engine.inputs.inputs import Inputs
    from velostream.engine.kinds.pipeline import Pipeline
    from velostream.engine.outputs.outputs import JobOutput
    from velostream.engine.runner import Progress
    from velostream.model.changes import BadRow, Commit, Offset, SourceOffsets
    from velostream.model.options import CommonOptions
    from velostream.serving.contract.table import Table

log = structlog.get_logger("velostream.job")

CLOSE = "__close"
"""Key beside the inputs in the end of a step: the watermark to which results close without new rows."""
_MOST_LOSSES = 10
"""The most immediate attempts at a step whose records the source deletes meanwhile."""


@dataclass
class Stage:
    """See `work.Work` for the contract of its methods."""

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
        """The positions that the output has committed."""
        return self.output.offsets

    def latest(self, after: SourceOffsets | None) -> SourceOffsets | None:
        """The newest positions of the inputs; when none has news, the step by which results close.

        When a crash left the result behind the state, the positions of the state come first.
        """
        behind = self.pipeline.unfinished(after)
        if behind is not None:
            return behind
        plain = None if after is None else {key: at for key, at in after.items() if key in self.inputs.all}
        end = self._newest(plain)
        if plain is not None and end == plain:
            closes = self.pipeline.closes_at(ended=self._ended(plain))
            if closes is None:
                return after
            end = {**plain, CLOSE: {"at": closes}}
        return end if end is None else self.pipeline.numbered(end)

    def _newest(self, after: SourceOffsets | None) -> SourceOffsets | None:
        """The newest consistent positions of the inputs; looked-up tables move only with the stream."""
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
            else [item.source.latest(item.since(_of(after, key)))]
            for key, item in self.inputs.all.items()
        }
        cut = newest_cut(candidates)
        if cut is None and self.patient:
            self._apart = True
            return after
        return cut if cut is not None else {key: offsets[0] for key, offsets in candidates.items()}

    def advance(self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit) -> BatchFigures:
        """Process new rows, or close results by the watermark, in one commit."""
        if CLOSE in end:
            rest = {key: at for key, at in end.items() if key != CLOSE}
            closed = self.pipeline.close(end[CLOSE]["at"], replace(commit, offsets=rest))
            figures = BatchFigures(0, closed.rows_out)
        else:
            figures = self._advance(start, end, commit)
        clock = self.pipeline.clock
        if clock is None:
            return figures
        times = clock.marks.times()
        return replace(figures, late_rows=clock.take_late(), watermark=clock.at, event_times=times)

    def _advance(self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit) -> BatchFigures:
        """Attempt the step; where the source has deleted records meanwhile, report them and read the rest."""
        sources = [item.source for item in self.inputs.all.values()]
        for attempt in range(_MOST_LOSSES):
            try:
                return self._attempt(start, end, commit)
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
        """Whether a source finds that more records of the range are gone than it knew."""
        found = [
            Explaining.of(item.source).note_lost(_of(start, key), end[key])
            for key, item in self.inputs.all.items()
        ]
        return any(found)

    def _attempt(self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit) -> BatchFigures:
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
            progress, bad = self.rebuild(end, commit, exc), 0
        except InternalError as exc:
            # A retracted row was not found: the query is not deterministic on these rows, by ties in ORDER BY
            # or doubles that are added in another order.
            if not self.pipeline.derived or not self.pipeline.anew:
                raise
            progress, bad = self.rebuild(end, commit, exc), 0
        self.dead_letters.committed()
        bad += self.output.take_refused()
        self.pipeline.feed.forget_excluded()
        # Sources count the records that they delivered; for tables only the rows that the query read are
        # known.
        counts = [
            Counted.of(item.source).count(item.since(_of(start, key)), end[key])
            for key, item in self.inputs.all.items()
        ]
        known = [count for count in counts if count is not None]
        rows_in = sum(known) if known else progress.rows_in
        by_partition: dict[str, int] = {}
        for key, item in self.inputs.all.items():
            by_partition |= Counted.of(item.source).counts(item.since(_of(start, key)), end[key])
            item.source.commit(end[key])
        looked_up, misses = self.pipeline.feed.take_figures()
        return BatchFigures(rows_in, progress.rows_out, bad, looked_up, misses, by_partition)

    def _nothing_new(self, start: SourceOffsets | None, end: SourceOffsets) -> bool:
        """Whether the tables have the same versions as before, with newer positions of their own inputs."""
        if start is None or start.keys() != end.keys():
            return False
        return all(
            isinstance(item.source, TableSource) and start[key].get(VERSION) == end[key].get(VERSION)
            for key, item in self.inputs.all.items()
        )

    def rebuild(self, end: SourceOffsets, commit: Commit, why: VelostreamError) -> Progress:
        """Recompute the result as of `end`, where an incremental step is impossible; logs why."""
        log.warning("rebuild", job=self.job, reason=why.message)
        return self.pipeline.rebuild(end, commit)

    def _fast(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit
    ) -> tuple[Progress, int] | None:
        """The step as if every row were good; None when one may be bad, and nothing was committed."""
        if self.pipeline.lost:
            return None
        for key, item in self.inputs.all.items():
            since = item.since(_of(start, key))
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
        """The step without bad rows, which become dead letters or stop the job, as the statement says.

        Dead letters are durable before the batch is committed, so that a crash in between loses none.
        `again`: an earlier attempt kept letters. Letters of rows that can be computed now are dropped, so
        that no row is both in the result and a dead letter.
        """
        self._widen(start, end)
        bad = list(self._bad_rows(start, end))
        self.keep("decoding", bad, start, end)
        within = self.pipeline.feed.computing_errors(start, end)
        self.keep("deriving", within, start, end)
        bad += within
        aside = 0
        if again:
            came, _ = self.set_aside(start, end)
            self.keep("computing", came, start, end)
            aside = len(came)
            self.dead_letters.settle(self.job, f"{start}")
        if self.pipeline.lost:
            return self._around_overflow(start, end, commit, len(bad) + aside)
        # First without bad rows of the range. A step that recomputes keys from all rows may also read a row
        # that was set aside long ago: the second attempt excludes those too.
        for since in (start, None):
            try:
                return self.pipeline.advance(start, end, commit, careful=True), len(bad) + aside
            except Exception as exc:
                if not maybe_data_error(exc):
                    raise
                cause = exc
            came, found = self.set_aside(since, end)
            if since is start:
                self.keep("computing", came, start, end)
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

    def set_aside(self, since: SourceOffsets | None, end: SourceOffsets) -> tuple[list[BadRow], bool]:
        """Exclude the rows after `since` that cannot be computed from all further attempts at the step.

        Returns the added ones among them, and whether there were any, added or retracted.
        """
        culprits = list(self.pipeline.culprits(since, end))
        for key, _, culprit in culprits:
            self.pipeline.feed.excluded.setdefault(key, set()).add(culprit.position)
        return self._found(end, [(key, culprit) for key, came, culprit in culprits if came]), bool(culprits)

    def _found(self, end: SourceOffsets, culprits: list[tuple[str, Culprit]]) -> list[BadRow]:
        """Rows that cannot be computed, with their records at the source, as dead letters."""
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
        """The step without groups that fail though each row is good; they become dead letters.

        A sum of the group overflowed its type, or an expression over its sums fails.
        """
        kept: list[BadRow] = []

        def keep(groups: list[BadRow]) -> None:
            self.keep("summing", groups, start, end)
            kept.extend(groups)

        progress = self.pipeline.advance_around_overflow(start, end, commit, keep)
        return progress, bad + len(kept)

    def _widen(self, start: SourceOffsets | None, end: SourceOffsets) -> None:
        for key, item in self.inputs.all.items():
            wider = Widening.of(item.source).widen(item.since(_of(start, key)), end[key])
            if wider is not None and wider != item.schema:
                self.remember(key, wider)
                raise ColumnsWidenedError(
                    f"{item.description} has wider columns now", detail=f"{key}: {wider}"
                )

    def _bad_rows(self, start: SourceOffsets | None, end: SourceOffsets) -> Iterator[BadRow]:
        for key, item in self.inputs.all.items():
            for row in BadRecords.of(item.source).bad_rows(item.since(_of(start, key)), end[key]):
                yield replace(row, input=key)

    def keep(self, stage: str, rows: list[BadRow], start: SourceOffsets | None, end: SourceOffsets) -> None:
        """Handle bad rows as the statement's options say: dead letters, or stop the job."""
        keep_as_told(self.dead_letters, self.job, self.options, stage, f"{start}", rows)

    def replay_end(self, have: SourceOffsets) -> SourceOffsets:
        """The end of a step that replays records and reads nothing new."""
        return self.pipeline.numbered(have)

    def lags(self) -> dict[str, int]:
        """The lag of the output behind each partition of the inputs, where sources can tell."""
        have = self.offsets() or {}
        found: dict[str, int] = {}
        for key, item in self.inputs.all.items():
            found |= Counted.of(item.source).lags(have.get(key, {}))
        return found

    def state(self) -> Sequence[Table]:
        """See `Pipeline`."""
        return self.pipeline.state

    def settled(self) -> bool:
        """Whether every input has reported all its data, at consistent positions."""
        return not self._apart and all(item.source.settled() for item in self.inputs.all.values())

    def health(self) -> tuple[str, str | None]:
        """The worst health of the inputs, with its reason."""
        return worst(item.source.health() for item in self.inputs.all.values())

    def finished(self, offsets: SourceOffsets) -> bool:
        """Whether all inputs have ended and all results have closed."""
        return self._ended(offsets) and not self.pipeline.waiting

    def _ended(self, offsets: SourceOffsets) -> bool:
        """Whether every input but the tables that a stream is joined to is bounded and read to its end."""
        stream = self.pipeline.stream
        return all(
            item.source.finished(offsets[key])
            for key, item in self.inputs.all.items()
            if stream is None or key == stream
        )

    @property
    def poll_seconds(self) -> float:
        """The shortest poll interval of the inputs."""
        return min(
            (item.source.traits.poll_interval.total_seconds() for item in self.inputs.all.values()),
            default=0.1,
        )

    def listen(self, news: Event) -> None:
        """See `Work`."""
        for item in self.inputs.all.values():
            Announcing.of(item.source).listen(news)

    @property
    def trigger_seconds(self) -> float:
        """The statement's `trigger.interval`, or that of EMIT CHANGES EVERY where it is longer."""
        return max(self.options.trigger_interval.total_seconds(), self.every)

    def close(self) -> None:
        """Close inputs and output."""
        for item in self.inputs.all.values():
            item.source.close()
        self.output.close()


def _of(offsets: SourceOffsets | None, key: str) -> Offset | None:
    return offsets.get(key) if offsets is not None else None
