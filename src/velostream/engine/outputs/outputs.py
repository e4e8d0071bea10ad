"""Where a job's result goes: a table, a sink, or a reader that waits for it.

Every output records, in one durable step with the rows, which source positions they contain.
"""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from velostream.engine.rows.multisets import net
from velostream.errors import InternalError, UnsupportedError
from velostream.model.columns import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from velostream.connectors.base import Sink
    from velostream.disk.journal import Journal
    from velostream.engine.bad_rows.dead_letters import Refused
    from velostream.model.changes import BadRow, Commit, SourceOffsets
    from velostream.serving.contract.table import Table


REPLAY = "replay"
"""Key in a commit: the token of the replay of dead letters that the commit contains."""


class JobOutput(ABC):
    """The destination of a job's result; it knows which source positions it contains."""

    @property
    @abstractmethod
    def offsets(self) -> SourceOffsets | None:
        """The positions that the output contains; None before the first batch."""

    @abstractmethod
    def rows(self, added: pa.Table, removed: pa.Table | None, commit: Commit) -> None:
        """Add and retract rows, and record the commit's positions in the same durable step."""

    @property
    def replayed(self) -> str | None:
        """The token of the replay that the last commit contains; None if it was no replay."""
        return None

    def take_refused(self) -> int:
        """How many rows could not be written since the last call."""
        return 0

    def close(self) -> None:  # noqa: B027
        """Release resources."""


class TableOutput(JobOutput):
    """A table; its log is the record."""

    def __init__(self, table: Table) -> None:
        self.table = table

    @property
    def offsets(self) -> SourceOffsets | None:
        """From the table's last commit."""
        last = self.table.last_commit
        return last.offsets if last is not None else None

    @property
    def replayed(self) -> str | None:
        """From the table's last commit."""
        last = self.table.last_commit
        return last.extra.get(REPLAY) if last is not None else None

    def rows(self, added: pa.Table, removed: pa.Table | None, commit: Commit) -> None:
        """Add and remove rows of a multiset."""
        if removed is None or removed.num_rows == 0:
            self.table.commit_rows(added, None, commit)
            return
        weights = pa.array([1] * added.num_rows + [-1] * removed.num_rows, pa.int64())
        self.table.commit_rows(pa.concat_tables([added, removed]), weights, commit)

    def replace_all(self, rows: pa.Table, commit: Commit) -> None:
        """Make these rows the whole content."""
        self.table.replace_all(rows, commit)


class SinkOutput(JobOutput):
    """An external sink; a journal beside the job records which positions it contains."""

    def __init__(self, sink: Sink, journal: Journal, refused: Refused | None = None) -> None:
        self._sink = sink
        self.refused = refused
        """Handles rows that the sink can never accept."""
        self._journal = SinkJournal(journal)
        self._sink.recover(self._journal.recorded)
        intent = self._journal.intent
        if intent is not None:
            if self._sink.settle(intent.recorded):
                self._journal.append(intent.recorded, intent.offsets, intent.replay)
            self._journal.intent = None

    @property
    def offsets(self) -> SourceOffsets | None:
        """From the journal's last line."""
        return self._journal.offsets

    @property
    def replayed(self) -> str | None:
        """From the journal's last line."""
        return self._journal.replay

    def take_refused(self) -> int:
        """The number of rows that the sink refused since the last call."""
        if self.refused is None:
            return 0
        count, self.refused.count = self.refused.count, 0
        return count

    def rows(self, added: pa.Table, removed: pa.Table | None, commit: Commit) -> None:
        """Write added and retracted rows; raises UnsupportedError for retractions if a sink only appends."""
        rows = self._changes(added, removed)
        if self._journal.intent is not None:
            raise InternalError("a write whose outcome is not known must be settled before the next")
        intended = self._sink.intend(self._journal.steps, rows)
        replay = commit.extra.get(REPLAY)
        if intended is not None:
            self._journal.intend(intended, commit.offsets, replay)
        recorded = self._sink.write(self._journal.steps, rows)
        self._journal.append(recorded, commit.offsets, replay)
        self._sink.committed(recorded)

    def refusals(self, rows: Sequence[pa.Table]) -> list[str | None]:
        """For each of these rows why the sink would refuse it, or None; nothing is written."""
        reasons: list[str | None] = []
        if self.refused is None:
            return [None] * len(rows)
        try:
            for row in rows:
                aside: list[BadRow] = []
                self.refused.aside = aside
                self._sink.try_out(row)
                reasons.append(aside[0].reason if aside else None)
        finally:
            self.refused.aside = None
        return reasons

    def rewrite(self, rows: Sequence[pa.Table], commit: Commit) -> None:
        """Write rows again that were refused before."""
        plain = [row.drop_columns([WEIGHT]) if WEIGHT in row.schema.names else row for row in rows]
        gone = [WEIGHT in row.schema.names and row[WEIGHT][0].as_py() < 0 for row in rows]
        added = [row for row, went in zip(plain, gone, strict=True) if not went]
        removed = [row for row, went in zip(plain, gone, strict=True) if went]
        nothing = plain[0].slice(0, 0)
        self.rows(_together(added or [nothing]), _together(removed) if removed else None, commit)

    def _changes(self, added: pa.Table, removed: pa.Table | None) -> pa.Table:
        if removed is None or not removed.num_rows:
            return added
        if not self._sink.takes_deletes:
            raise UnsupportedError(
                "a row was retracted at the source, and this sink can only append",
                hint="select the key of the table that is read, if the sink knows keys; "
                "or write to a table, or read a source that only grows",
            )
        # A row that came and went within the step would be written last, and stay.
        added, removed = net(added, removed)
        if not removed.num_rows:
            return added
        weights = pa.array([-1] * removed.num_rows + [1] * added.num_rows, pa.int64())
        return pa.concat_tables([removed, added]).append_column(WEIGHT, weights)

    def close(self) -> None:
        """Close the sink and its journal, whose length is recorded."""
        self._sink.close()
        self._journal.close()


class Intent(NamedTuple):
    """The intent of a write: what it will have recorded, and the positions that the sink contains then."""

    recorded: Mapping[str, Any]
    offsets: SourceOffsets
    replay: str | None = None


class SinkJournal:
    """What a sink's last write recorded, and which source positions the sink contains with it.

    The intent of the next write may follow. It is replaced by the record of that write, or by another intent:
    then the write of the former did not take place.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.recorded: Mapping[str, Any] | None = None
        self.offsets: SourceOffsets | None = None
        self.replay: str | None = None
        """The token of the replay of dead letters that the last write contained, if any."""
        self.steps = 0
        """How many writes were recorded in all: Spark numbers its batches anew after each start."""
        self.intent: Intent | None = None
        """A write that may or may not have taken place before a crash."""
        entries = self._journal.load()
        self._kept = len(entries)
        written = [entry for entry in entries if "recorded" in entry]
        if written:
            last = written[-1]
            self.recorded, self.offsets, self.steps = last["recorded"], last["offsets"], last["step"]
            self.replay = last.get(REPLAY)
        if entries and "intended" in entries[-1]:
            last = entries[-1]
            self.intent = Intent(last["intended"], last["offsets"], last.get(REPLAY))

    def close(self) -> None:
        """Close the journal and record its length."""
        self._journal.close()

    def intend(self, recorded: Mapping[str, Any], offsets: SourceOffsets, replay: str | None = None) -> None:
        """Make the intent of the next write durable."""
        self._journal.append({"intended": recorded, "offsets": offsets} | _marked(replay))
        self._kept += 1
        self.intent = Intent(recorded, offsets, replay)

    def append(self, recorded: Mapping[str, Any], offsets: SourceOffsets, replay: str | None = None) -> None:
        """Make the record of a completed write durable."""
        entry = {"step": self.steps + 1, "recorded": recorded, "offsets": offsets} | _marked(replay)
        if self._kept < _MOST_KEPT:
            self._journal.append(entry)
            self._kept += 1
        else:
            self._journal.rewrite([entry])
            self._kept = 1
        self.recorded, self.offsets, self.steps = recorded, offsets, self.steps + 1
        self.replay, self.intent = replay, None


def _together(rows: Sequence[pa.Table]) -> pa.Table:
    """Rows kept at different times: columns may have widened since the first."""
    return pa.concat_tables(rows, promote_options="permissive")


def _marked(replay: str | None) -> dict[str, str]:
    return {} if replay is None else {REPLAY: replay}


_MOST_KEPT = 1000


class ReaderOutput(JobOutput):
    """A reader of a continuous SELECT: rows are handed to it and not stored.

    A few batches are queued for a slow reader; then the job blocks.
    """

    def __init__(self, capacity: int = 4) -> None:
        self.batches: queue.Queue[tuple[pa.Table, pa.Table | None]] = queue.Queue(capacity)
        self._offsets: SourceOffsets | None = None
        self._abandoned = Event()

    @property
    def offsets(self) -> SourceOffsets | None:
        """The positions that were handed to the reader; not durable."""
        return self._offsets

    def rows(self, added: pa.Table, removed: pa.Table | None, commit: Commit) -> None:
        """Hand rows to the reader; blocks while the queue is full."""
        if added.num_rows or (removed is not None and removed.num_rows):
            while not self._abandoned.is_set():
                try:
                    self.batches.put((added, removed), timeout=0.1)
                    break
                except queue.Full:
                    continue
        self._offsets = commit.offsets

    def abandon(self) -> None:
        """The reader is gone: drop further rows."""
        self._abandoned.set()


def table_of(output: JobOutput) -> Table:
    """The table behind an output that must be one."""
    return table_output(output).table


def table_output(output: JobOutput) -> TableOutput:
    """The output, which must be a table."""
    if not isinstance(output, TableOutput):
        raise InternalError("this plan needs a table to merge into")
    return output
