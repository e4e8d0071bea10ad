"""The write side of a table in memory: commits one after the other, each durable before readers see it."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from velostream.errors import InternalError
from velostream.model.columns import EXPIRES
from velostream.model.moments import micros
from velostream.serving.columns.dictionaries import Dictionaries, joined
from velostream.serving.columns.merger import Merger
from velostream.serving.columns.segments import Counts, Views, index_by, make_views, subtract
from velostream.serving.columns.turns import short_turns
from velostream.serving.columns.values import KeyCodec
from velostream.serving.durable.compaction import Compaction
from velostream.serving.durable.table_files import Change, Journal, with_schema
from velostream.serving.durable.verification import TableReport, verify
from velostream.serving.index.keys import KeyIndex, Link
from velostream.serving.index.made_rows import MadeRows
from velostream.serving.index.matching import matching_ids
from velostream.serving.memory import changes
from velostream.serving.memory.expiry import Expiry
from velostream.serving.memory.version import MemoryVersion
from velostream.serving.table.schemas import align, check_evolution, to_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from velostream.model.changes import Commit
    from velostream.model.lifetime import Lifetime
    from velostream.model.tables import TableSpec
    from velostream.serving.columns.hashing import Hashes
    from velostream.serving.memory.budget import MemoryBudget


class Writer:
    """Turns commits into versions. `publish` is called with each new version, once it is durable."""

    def __init__(
        self,
        journal: Journal,
        publish: Callable[[MemoryVersion], None],
        budget: MemoryBudget,
        lifetime: Lifetime,
    ) -> None:
        self._lifetime = lifetime
        self._journal = journal
        self._publish = publish
        self._budget = budget
        self._unapplied = False
        self.lock = RLock()
        """Held during a commit, and where segments are merged; readers never take it."""
        self._set_codec(journal.spec)
        recovered = journal.recover(self._dictionaries)
        self._merger = Merger(self.lock, lambda: self._version.views, self._rearrange)
        views = self._merger.at_once(recovered.views)
        index = KeyIndex(self.codec, views) if journal.spec.key else None
        self._version = MemoryVersion(
            journal.spec,
            recovered.version,
            views,
            recovered.limit,
            recovered.commit,
            index,
            self._first_link(),
        )
        publish(self._version)
        budget.enter(self)
        self._compaction = Compaction(journal, self.lock, lambda: self._version)
        self._compaction.after_commit()
        with self.lock:
            self._merger.after_commit()

    def _set_codec(self, spec: TableSpec) -> None:
        # A retraction has to match its row whatever time of expiry each was given: EXPIRES is not compared.
        self.codec = KeyCodec(spec.schema, spec.key or [n for n in spec.schema.names if n != EXPIRES])
        self._expiry = Expiry.of(spec)
        self._dictionaries = Dictionaries(spec)

    def _first_link(self) -> Link:
        return Link(MadeRows(), plain=self.codec.plain)

    @property
    def version(self) -> MemoryVersion:
        """The newest version."""
        return self._version

    @property
    def spec(self) -> TableSpec:
        """The newest schema, key and options of the table."""
        return self._version.spec

    # --- commits ------------------------------------------------------------------------------------

    def keyed(self, upserts: pa.Table | None, deletes: list[Hashable], commit: Commit) -> int:
        """Delete keys, then upsert rows, in one version; returns its number."""
        with self.lock, short_turns():
            before = self._version
            index = before.index
            if index is None:
                raise InternalError(f'table "{before.spec.name}" has no key')
            # Readers check this flag after they took a ready row: from here on it may be of the next version.
            # They also leave the interpreter to the writer more often, and make no blocks of rows ready.
            before.link.newest = False
            try:
                if self._expiry is not None and upserts is not None:
                    upserts, late = self._expiry.upserts(upserts, self.codec, micros(commit.at))
                    deletes = [*deletes, *late]
                rows = self._aligned(upserts)
                effect = changes.keyed_change(before, self.codec, rows, deletes)
                self._log(effect.change, commit)
                if effect.change.empty:
                    return self._move_on(commit)
                link = index.advance(before.link, effect.overwritten, effect.written, effect.deleted)
                return self._apply(effect.change, commit, link)
            finally:
                # Nothing was written, or it failed: the version is still the newest.
                before.link.newest = self._version.link is before.link

    def rows(self, rows: pa.Table, weights: Counts | None, commit: Commit) -> int:
        """Add rows to a multiset, or retract them where their weight is negative; returns the version."""
        with self.lock, short_turns():
            before = self._version
            if before.index is not None:
                raise InternalError(f'table "{before.spec.name}" has a key; commit rows by key')
            if self._expiry is not None:
                rows, weights = self._expiry.weighted(rows, weights, micros(commit.at))
            rows = self._aligned(rows)
            if weights is None or bool(np.all(weights > 0)):
                return self._commit_rows(changes.appended(rows, weights), commit)
            # A row may have expired before its retraction: then the retraction finds nothing, rightly.
            gone = self._expiry is not None
            effect = changes.rows_change(before, self.codec, rows, weights, may_be_gone=gone)
            return self._commit_rows(effect.change, commit, effect.hashes)

    def remove_where(self, keys: pa.Table, commit: Commit) -> int:
        """Delete the rows of a multiset that have these values in some columns; returns the version."""
        with self.lock, short_turns():
            version = self._version
            ids = matching_ids(version, keys.schema.names, keys)
            if not len(ids):
                return version.number
            stored = version.stored(ids)
            amounts = version.counts(ids).astype(np.int64)
            change = Change(stored, ids, amounts, stored.slice(0, 0))
            return self._commit_rows(change, commit)

    def replace(self, rows: pa.Table, commit: Commit) -> int:
        """Make `rows` the whole content, as a change of the rows that differ; returns the version."""
        with self.lock, short_turns():
            before = self._version
            if self._expiry is not None:
                rows, _ = self._expiry.weighted(rows, None, micros(commit.at))
            rows = self._aligned(rows)
            if before.index is None:
                return self._commit_rows(changes.difference(before, self.codec, rows), commit)
            kept = set(self.codec.encode_columns(rows))
            deletes = [key for key in before.index.slots if key not in kept]
            return self.keyed(rows, deletes, commit)

    def next_due(self) -> int | None:
        """When the next row expires, in microseconds since 1970; None when none does."""
        self._lifetime.check()
        return self._expiry.next_due(self._version) if self._expiry is not None else None

    def expire(self, at: int, commit: Commit) -> int:
        """Delete the rows that expire up to `at`; returns the version. Rows of a failed commit stay due."""
        with self.lock:
            version, expiry = self._version, self._expiry
            due = expiry.take(version, at) if expiry is not None else []
            if not due or expiry is None:
                return version.number
            try:
                rows = version.physical_where((EXPIRES,), pa.table({EXPIRES: pa.array(due, pa.int64())}))
                if not rows.num_rows:
                    return version.number
                if version.index is not None:
                    return self.keyed(None, self.codec.encode_columns(rows), commit)
                return self.rows(rows, np.full(rows.num_rows, -1, dtype=np.int64), commit)
            except BaseException:
                expiry.put_back(due)
                raise

    def _commit_rows(self, change: Change, commit: Commit, hashes: Hashes | None = None) -> int:
        """`hashes` are those of the added rows, where retractions find rows by hash."""
        self._log(change, commit)
        if change.empty:
            return self._move_on(commit)
        return self._apply(change, commit, self._version.link, hashes)

    def _aligned(self, rows: pa.Table | None) -> pa.Table:
        schema = self._version.spec.schema
        if rows is None:
            return schema.empty_table()
        return self._dictionaries.encode(align(rows, schema, self._version.spec.name))

    # --- the steps of a commit ----------------------------------------------------------------------

    def _log(self, change: Change, commit: Commit) -> None:
        # A thread may have waited for the lock while the table was closed. Another process may hold the files
        # by now, so it must not write.
        self._lifetime.check()
        before = self._version
        # The log would name row ids that memory does not have: only reading the log again repairs that.
        if self._unapplied:
            raise InternalError(
                f'table "{before.spec.name}" has a durable commit that could not be applied',
                hint="open the table again",
            )
        self._check_budget(change)
        number = before.number if change.empty else before.number + 1
        self._journal.record(change, number, before.limit, commit, before.number)
        self._unapplied = True

    def _check_budget(self, change: Change) -> None:
        if change.added.num_rows > change.removed.num_rows:
            self._budget.check(self, change.added.nbytes)

    def _apply(self, change: Change, commit: Commit, link: Link, hashes: Hashes | None = None) -> int:
        before = self._version
        if self._expiry is not None:
            self._expiry.written(change.added)
        views = subtract(before.views, change.removed_ids, change.removed_amounts)
        fresh = make_views(to_batches(change.added), before.limit, change.added_counts)
        if hashes is not None:
            index_by(self.codec.columns, hashes, fresh)
        views += fresh
        limit = before.limit + change.added.num_rows
        number = before.number + 1
        views = self._merger.at_once(views)
        self._replace(MemoryVersion(before.spec, number, views, limit, commit, before.index, link))
        self._merger.after_commit()
        return number

    def _move_on(self, commit: Commit) -> int:
        """Publish a commit that changed positions but no rows: the version keeps its number."""
        self._replace(self._version.with_commit(commit))
        return self._version.number

    def _rearrange(self, views: Views) -> None:
        """Publish the same rows in merged segments; number and commit stay."""
        self._version = self._version.with_views(views)
        if self._version.index is not None:
            self._version.index.rearranged(views)
        self._publish(self._version)

    def _replace(self, version: MemoryVersion) -> None:
        self._version = version
        self._unapplied = False
        self._publish(self._version)
        self._compaction.after_commit()

    # --- the rest -----------------------------------------------------------------------------------

    def evolve(self, schema: pa.Schema) -> None:
        """Widen the schema durably and cast the rows; raises where columns would narrow or vanish."""
        with self.lock:
            self._lifetime.check()
            before = self._version
            if schema.equals(before.spec.schema):
                return
            check_evolution(before.spec.schema, schema, before.spec.key, before.spec.name)
            spec = with_schema(before.spec, schema)
            rows = [align(view.segment.batch, schema, spec.name, stored=True) for view in before.views]
            self._journal.write_spec(spec)
            self._set_codec(spec)
            views = tuple(
                view.with_batch(joined(self._dictionaries.encode(each).to_batches()))
                for view, each in zip(before.views, rows, strict=True)
            )
            index = KeyIndex(self.codec, views) if spec.key else None
            # Ready rows and the links between versions are of the old types: a new chain of versions begins.
            before.link.newest = False
            self._merger.forget()
            link = self._first_link()
            number, limit, made_by = before.number, before.limit, before.commit
            self._replace(MemoryVersion(spec, number, views, limit, made_by, index, link))

    def snapshot(self) -> None:
        """Write a snapshot now and truncate the log to what follows it."""
        self._lifetime.check()
        self._compaction.snapshot()

    def verify(self) -> TableReport:
        """Check every durable file up to the current end of the log, while commits go on."""
        with self._compaction.paused():
            with self.lock:
                self._lifetime.check()
                end = self._journal.end
            return verify(self._journal.folder, end)

    def close(self, *, dropped: bool) -> None:
        """Close the files, after a snapshot that is being written; that of a dropped table is abandoned."""
        self._compaction.stop(give_up=dropped)
        self._merger.stop()
        with self.lock:
            self._journal.close(dropped=dropped)
