"""Replay of dead letters, by the job that rejected them and on the thread of its steps.

A replay is a step with the same statement, plan and output, but of the records at the positions of letters,
instead of those between two positions. It is exactly once: which letters will be deleted is made durable
first (the intent), then the result's commit names the replay, then the letters are deleted. After a crash
`Pending.settle` compares intent and commit, before the job does anything else.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from velostream.connectors.capabilities import Replayable
from velostream.engine.bad_rows.data_errors import data_error, maybe_data_error
from velostream.engine.bad_rows.failures import explained
from velostream.engine.bad_rows.letter import Letter
from velostream.engine.event_time.origin import Origin
from velostream.engine.event_time.windows import WindowPipeline
from velostream.engine.inputs.inputs import records_at
from velostream.engine.outputs.outputs import REPLAY, SinkOutput, TableOutput
from velostream.engine.replay.sink_rows import to_write
from velostream.engine.stage import Stage
from velostream.engine.stages import Stages
from velostream.errors import ReplayInterruptedError, UnsupportedError, VelostreamError
from velostream.model.changes import FORGETS, Commit
from velostream.model.columns import BAD, POSITION
from velostream.spark.failures import cause_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from velostream.engine.event_time.late_windows import LateWindows
    from velostream.engine.replay.intent import Pending
    from velostream.engine.work import Work
    from velostream.model.changes import SourceOffsets

_STEP = 5000
"""The most letters of one step; a step that fails is tried again in halves."""
_GONE = "its record is gone from {}"
_JOINED = "it failed after it was joined, and its record is not known any more"
_UNPLACED = "it came too late, and where its record is was not kept; CREATE OR REPLACE reads everything anew"
_OLD = "it was kept by an earlier version, which did not keep where its record is"

Place = tuple[str, str]
"""The input and the position of a record."""


@dataclass
class Outcome:
    """The outcome of a replay, by the numbers of letters."""

    taken: set[int] = field(default_factory=set)
    failing: dict[int, str] = field(default_factory=dict)
    """Letters that stay, and why they failed this time."""
    impossible: dict[int, str] = field(default_factory=dict)
    """Letters that cannot be replayed, and why."""


def parts(work: Work) -> list[Stage]:
    """The stages of a job, in the order in which rows pass them; none in real-time mode."""
    if isinstance(work, Stages):
        return [*work.keeping, *work.then]
    return [work] if isinstance(work, Stage) else []


def replay(
    work: Work, job_id: str, letters: Sequence[Letter], pending: Pending, clock: Callable[[], datetime]
) -> Outcome:
    """Replay letters; those that succeeded are deleted when this returns.

    Raises UnsupportedError in real-time mode, and ReplayInterruptedError where it is unknown whether a step
    was committed: then the job settles it when it starts again.
    """
    pieces = parts(work)
    if not pieces:
        raise UnsupportedError(
            "dead letters of a statement in real-time mode cannot be replayed",
            hint='run the statement without "latency", into another topic, to have them tried there',
        )
    at = clock()
    if isinstance(work, Stages):
        at = work.time.stamped(Commit(job_id, 0, {}, at), work.time.at()).at
        # A step that a crash left unfinished is completed first: the stages must be at the same position.
        work.catch_up(Commit(job_id, 0, {}, at))
    outcome = Outcome()
    left = list(letters)
    for part in pieces:
        one = _Replay(part, job_id, pending, at, outcome, _taking(work))
        mine = [letter for letter in left if one.knows(letter)]
        left = [letter for letter in left if letter not in mine]
        try:
            one.run(mine)
        except ReplayInterruptedError:
            raise
        except Exception as exc:
            raise _explained(part, exc) from exc
    outcome.impossible |= {letter.number: _unknown(letter) for letter in left}
    if isinstance(work, Stages) and outcome.taken:
        work.catch_up(Commit(job_id, 0, {}, at))
    return outcome


def _taking(work: Work) -> LateWindows | None:
    """The windows that the job aggregates from kept rows; None where it has none.

    These windows decide whether a replayed record is late, not the stage that keeps its row.
    """
    first = work.then[0].pipeline if isinstance(work, Stages) and work.keeping else None
    return first.late if isinstance(first, WindowPipeline) else None


def _unknown(letter: Letter) -> str:
    if letter.edition is None:
        return _OLD
    if letter.kind == "lost":
        return "its records were gone before they were read"
    if letter.kind in ("late", "timing") and letter.position is None:
        return _UNPLACED
    return _JOINED if letter.kind == "compute" else "the job does not read its source any more"


def _explained(work: Stage, exc: Exception) -> VelostreamError:
    """The error in the user's terms; nothing has been changed."""
    return explained(exc, [item.source for item in work.inputs.all.values()])


class _Replay:
    """The replay of letters through one stage of their job."""

    def __init__(
        self,
        work: Stage,
        job_id: str,
        pending: Pending,
        at: datetime,
        outcome: Outcome,
        windows: LateWindows | None,
    ) -> None:
        self._work = work
        self._job_id = job_id
        self._pending = pending
        self._at = at
        self._outcome = outcome
        self._windows = windows
        """The windows that are aggregated from the rows that this stage, or one beside it, keeps."""

    def knows(self, letter: Letter) -> bool:
        """Whether this stage is the one that rejected the letter's row."""
        if letter.edition is None:
            return False
        if letter.kind == "write":
            return isinstance(self._work.output, SinkOutput) and letter.row is not None
        if letter.kind == "overflow":
            return self._work.pipeline.groups
        if letter.position is not None:
            item = self._work.inputs.all.get(letter.input or "")
            return item is not None and item.source.traits.positioned
        return letter.kind == "compute" and self._over_tables and self._windows is None

    @property
    def _over_tables(self) -> bool:
        """Whether all inputs are tables, so that the whole result can be recomputed at any time."""
        sources = [item.source for item in self._work.inputs.all.values()]
        return not any(source.traits.positioned for source in sources) and self._work.pipeline.stream is None

    def run(self, letters: list[Letter]) -> None:
        """Replay these letters, which this stage knows."""
        have = self._work.offsets()
        if not letters:
            return
        if have is None:
            self._impossible(letters, "its job has no result yet")
            return
        waiting = self._work.dead_letters.uncommitted(self._work.job, f"{have}")
        self._impossible([x for x in letters if x.number in waiting], "its batch has not been committed yet")
        letters = [letter for letter in letters if letter.number not in waiting]
        groups = [letter for letter in letters if letter.kind == "overflow"]
        writes = [letter for letter in letters if letter.kind == "write"]
        placed = [x for x in letters if x.position is not None and x.kind != "write"]
        contents = [x for x in letters if x.position is None and x.kind == "compute"]
        if self._work.pipeline.stream is not None:
            # A lookup join reads tables as of the step: a replayed record is joined with their newest rows.
            tables = {k: i.source for k, i in self._work.inputs.all.items() if not i.source.traits.positioned}
            have = {**have, **{key: source.latest(have.get(key)) for key, source in tables.items()}}
        self._groups(groups)
        self._records(self._current(placed), have)
        if contents:
            self._anew(contents, have)
        for start in range(0, len(writes), _STEP):
            self._write(writes[start : start + _STEP], have)

    def _impossible(self, letters: Iterable[Letter], why: str) -> None:
        self._outcome.impossible |= {letter.number: why for letter in letters}

    # --- letters of a statement that CREATE OR REPLACE replaced -------------------------------------------

    def _current(self, letters: list[Letter]) -> list[Letter]:
        """The letters whose records this job has not read.

        Letters of the replaced statement whose records the new one has read are deleted: where a record
        failed again, it has a letter of the new statement.
        """
        mine, taken = [], []
        for letter in letters:
            source = self._work.inputs.all[letter.input or ""].source
            took = (
                False if letter.edition == self._job_id else Replayable.of(source).took(letter.position or "")
            )
            if took is None:
                self._impossible([letter], "the job does not read its source any more")
            elif took:
                taken.append(letter.number)
            else:
                mine.append(letter)
        self._answer(taken, {})
        return mine

    def _answer(self, taken: Iterable[int], failing: Mapping[int, str]) -> None:
        taken = set(taken)
        self._work.dead_letters.answer(taken, failing, self._at)
        self._outcome.taken |= taken
        self._outcome.failing |= failing

    def _groups(self, letters: list[Letter]) -> None:
        """Delete the letters of groups that the result contains again, which it does once their sums fit."""
        lost = self._work.pipeline.lost
        old = {letter.number for letter in letters if letter.edition != self._job_id}
        back = {letter.number for letter in letters if letter.offset not in lost} | old
        failing = {letter.number: letter.reason for letter in letters if letter.number not in back}
        self._answer(back, failing)

    # --- records ----------------------------------------------------------------------------------------

    def _records(self, letters: list[Letter], have: SourceOffsets) -> None:
        by_place: dict[Place, list[int]] = {}
        for letter in letters:
            by_place.setdefault((letter.input or "", letter.position or ""), []).append(letter.number)
        places = list(by_place)
        for start in range(0, len(places), _STEP):
            chunk = places[start : start + _STEP]
            self._chunk({place: by_place[place] for place in chunk}, have)

    def _chunk(self, by_place: dict[Place, list[int]], have: SourceOffsets) -> None:
        """Replay the records at these places in one step, or in halves where they fail only together."""
        if not by_place:
            return
        inputs = self._work.inputs
        # For the time of this step: other dead letters are excluded, the replayed records are not.
        excluded = {key: set(found) for key, found in inputs.excluded.items()}
        for key, found in self._others(by_place).items():
            inputs.excluded.setdefault(key, set()).update(found)
        for key, position in by_place:
            inputs.excluded.get(key, set()).discard(position)
        good: dict[Place, list[int]] = {}
        try:
            good, failing = self._tried(by_place, have)
            cause = self._step(good, failing, have)
        finally:
            inputs.again = None
            inputs.excluded.clear()
            inputs.excluded.update(excluded)
            for key, position in good:
                inputs.excluded.get(key, set()).discard(position)
            self._work.pipeline.feed.take_figures()
        if cause is None:
            return
        if len(good) == 1:
            self._answer((), {number: cause for numbers in good.values() for number in numbers})
            return
        halves = list(good.items())
        self._chunk(dict(halves[: len(halves) // 2]), have)
        self._chunk(dict(halves[len(halves) // 2 :]), have)

    def _others(self, by_place: Mapping[Place, object]) -> dict[str, set[str]]:
        """Positions of other dead letters, which would fail again where a group or key is recomputed."""
        if self._work.pipeline.by_row:
            return {}
        found: dict[str, set[str]] = {}
        for letter in Letter.all(self._work.dead_letters.of_edition(self._job_id)):
            place = (letter.input or "", letter.position or "")
            if letter.kind == "compute" and letter.position is not None and place not in by_place:
                found.setdefault(place[0], set()).add(place[1])
        return found

    def _tried(
        self, by_place: dict[Place, list[int]], have: SourceOffsets
    ) -> tuple[dict[Place, list[int]], dict[int, str]]:
        """The records that can be used now, and for the letters of all others why they still fail.

        Checked before the step, in the order in which the step would reject them: gone or not decodable, not
        computable, late. So that one bad record does not keep the others of its step from succeeding.
        """
        work = self._work
        good, failing = dict(by_place), dict[int, str]()
        for key in {key for key, _ in by_place}:
            item = work.inputs.all[key]
            asked = frozenset(position for each, position in by_place if each == key)
            frame = records_at(work.pipeline.spark, item, asked, have[key], item.wanted((POSITION,)))
            bad = f"{BAD} IS NOT NULL" if BAD in frame.columns else "false"
            rows = frame.selectExpr(POSITION, f"{bad} AS bad").toArrow()
            state = dict(zip(*(column.to_pylist() for column in rows.columns), strict=True))
            reasons = Replayable.of(item.source).reasons(
                [position for position, is_bad in state.items() if is_bad], have[key]
            )
            for position in asked:
                numbers = by_place[key, position]
                if position not in state:
                    self._outcome.impossible |= dict.fromkeys(numbers, _GONE.format(item.description))
                    del good[key, position]
                elif state[position]:
                    told = reasons.get(position) or "it cannot be decoded"
                    failing |= dict.fromkeys(numbers, told)
                    del good[key, position]
        work.inputs.again = _by_input(good)
        if good:
            for key, _, culprit in list(work.pipeline.culprits(have, have)):
                place = (key, culprit.position)
                if place in good:
                    failing |= dict.fromkeys(good.pop(place), culprit.row.reason)
            work.inputs.again = _by_input(good)
        if good:
            late = self._too_late(have)
            for place in [place for place in good if place[1] in late]:
                failing |= dict.fromkeys(good.pop(place), late[place[1]])
            work.inputs.again = _by_input(good)
        return good, failing

    def _too_late(self, have: SourceOffsets) -> dict[str, str]:
        if self._windows is not None:
            return self._windows.too_late_from(Origin(self._work.pipeline, have, have))
        return self._work.pipeline.too_late(have)

    def _step(self, good: dict[Place, list[int]], failing: dict[int, str], have: SourceOffsets) -> str | None:
        """Commit records to the result and delete their letters; returns the cause when they fail together.

        Raises ReplayInterruptedError for any error that is not the records' own: the commit may have
        happened.
        """
        work = self._work
        if not good:
            self._answer((), failing)
            return None
        taken = {number for numbers in good.values() for number in numbers}
        commit = self._intend(taken, failing, work.replay_end(have))
        try:
            if work.pipeline.lost:
                keep = lambda groups: work.keep("summing", groups, have, have)  # noqa: E731
                work.pipeline.advance_around_overflow(have, have, commit, keep)
            else:
                self._advance(have, commit)
        except Exception as exc:
            if not data_error(exc):
                raise self._interrupted(exc) from exc
            # The data cannot be computed, so nothing was committed: the intent is void.
            self._pending.done()
            self._answer((), failing)
            return cause_of(exc)
        self._done(taken, failing)
        return None

    def _advance(self, have: SourceOffsets, commit: Commit) -> None:
        """One careful step; older rows that it recomputes and that fail are excluded, once."""
        work = self._work
        try:
            work.pipeline.advance(have, commit.offsets, commit, careful=True)
        except Exception as exc:
            rows = work.pipeline.by_row
            if not maybe_data_error(exc) or rows or not work.set_aside(None, have)[1]:
                raise
            work.pipeline.advance(have, commit.offsets, commit, careful=True)

    def _intend(self, taken: set[int], failing: Mapping[int, str], have: SourceOffsets) -> Commit:
        token = uuid.uuid4().hex
        output = self._work.output
        last = output.table.last_commit if isinstance(output, TableOutput) else None
        self._pending.intend(token, taken, failing)
        before = last.extra if last is not None else {}
        # No position moves, so what the last commit says stays true, as the watermark. But readers skip
        # commits that only forget rows, and must not skip this one.
        extra = {name: value for name, value in before.items() if name != FORGETS} | {REPLAY: token}
        return Commit(self._job_id, 0, have, self._at, extra)

    def _done(self, taken: set[int], failing: dict[int, str]) -> None:
        self._answer(taken, failing)
        self._pending.done()

    def _interrupted(self, exc: Exception) -> ReplayInterruptedError:
        told = _explained(self._work, exc)
        return ReplayInterruptedError(
            f"the replay was interrupted: {told.message}",
            detail=told.detail,
            hint="the job finds out whether it took place; letters that are left can be replayed again",
        )

    # --- rows of tables ---------------------------------------------------------------------------------

    def _anew(self, letters: list[Letter], have: SourceOffsets) -> None:
        """Recompute the whole result from its tables, without the rows that still fail.

        Rows of tables have no positions at which they could be read again one by one.
        """
        work = self._work
        if not isinstance(work.output, TableOutput):
            self._impossible(letters, "its row came from a table, and what was written cannot be made anew")
            return
        end = work.latest(have)
        if end is not None and end != have:
            # New rows are processed first, as a step that keeps its own dead letters: the recomputation below
            # keeps none.
            work.advance(have, end, Commit(self._job_id, 0, end, self._at))
            have = end
        feed = work.pipeline.feed
        found = {row.offset: row.reason for row in feed.computing_errors(None, have)}
        for key, _, culprit in list(work.pipeline.culprits(None, have)):
            feed.excluded.setdefault(key, set()).add(culprit.position)
            found[culprit.position] = culprit.row.reason
        last = work.output.table.last_commit
        extra = {k: v for k, v in last.extra.items() if k != FORGETS} if last is not None else {}
        work.pipeline.rebuild(have, Commit(self._job_id, 0, have, self._at, extra))
        feed.forget_excluded()
        failing = {x.number: found[x.offset] for x in letters if x.offset in found}
        self._answer({x.number for x in letters if x.number not in failing}, failing)

    # --- rows that a sink refused -----------------------------------------------------------------------

    def _write(self, letters: list[Letter], have: SourceOffsets) -> None:
        work, output = self._work, self._work.output
        assert isinstance(output, SinkOutput)
        rows, moot = to_write(self._work, letters, have)
        refused = output.refusals([row for _, row in rows])
        failing = {
            letter.number: why for (letter, _), why in zip(rows, refused, strict=True) if why is not None
        }
        good = [(letter, row) for letter, row in rows if letter.number not in failing]
        taken = {letter.number for letter, _ in good} | {letter.number for letter in moot}
        if not good:
            self._answer(taken, failing)
            return
        commit = self._intend(taken, failing, have)
        try:
            output.rewrite([row for _, row in good], commit)
        except Exception as exc:
            raise self._interrupted(exc) from exc
        finally:
            work.output.take_refused()
        self._done(taken, failing)


def _by_input(places: Iterable[Place]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for key, position in places:
        found.setdefault(key, set()).add(position)
    return {key: frozenset(positions) for key, positions in found.items()}
