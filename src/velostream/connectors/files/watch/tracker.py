"""Polls the files and copies what changed into the spool."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from velostream.connectors.base import log
from velostream.connectors.files.place import reading, why
from velostream.connectors.files.spool.content import compared, read_at, unchanged
from velostream.connectors.files.spool.draft import Draft
from velostream.connectors.files.spool.segments import FileState, Identity
from velostream.connectors.files.watch import growth
from velostream.connectors.files.watch.edits import Rewriter
from velostream.connectors.files.watch.growth import HEAD, Growth
from velostream.connectors.files.watch.layout import layout_of
from velostream.connectors.files.watch.look import Look, MovingFileError
from velostream.connectors.files.watch.renames import find_renames
from velostream.errors import SourceDataError
from velostream.formats.compression import wide_encoding
from velostream.formats.json.documents import holds_document

if TYPE_CHECKING:
    from collections.abc import Callable

    from velostream.connectors.files.options import FilesOptions
    from velostream.connectors.files.place import Place
    from velostream.connectors.files.spool.spool import Spool

_VERIFIED_AT_ONCE = 4 * 1024 * 1024
VERIFIED_STEP = 64 * 1024 * 1024
"""A poll compares about this much of an unchanged large file, so that other files need not wait."""
_VERIFY_EVERY = timedelta(seconds=5)


class Tracker:
    """Each `poll` looks at all files once, and makes at most one new position of the spool."""

    def __init__(
        self,
        files: Place,
        spool: Spool,
        options: FilesOptions,
        *,
        once: bool,
        table: bool,
        clock: Callable[[], datetime],
    ) -> None:
        self._files = files
        self._spool = spool
        self._options = options
        self._once = once
        self._table = table
        self._clock = clock
        self._rewriter = Rewriter(table, options.buffer_size)
        self._growth = Growth(self._rewriter, options.buffer_size)
        self._now = clock()
        self.passed = timedelta(0)
        """Time elapsed over all polls; unlike the clock it never goes back."""
        self._first_seen: dict[str, tuple[Identity, timedelta]] = {}
        self._done: dict[str, Identity] = {}
        self._vanished: dict[str, timedelta] = {}
        # Files whose prefix was not compared completely since they changed, and when it last was.
        known = spool.files if files.compares else {}
        self._unverified: dict[str, timedelta] = dict.fromkeys(known, -_VERIFY_EVERY)
        # Large files may have been edited while no process
        # watched: how many of their blocks were compared since.
        self._compared: dict[str, int] = {
            path: 0 for path, state in known.items() if state.consumed > VERIFIED_STEP
        }
        self.unread = False
        """Whether the last poll left something for the next one."""
        self.outage: str | None = None
        """Why nothing can be read at present; None when it can."""
        self.unreadable: dict[str, str] = {}
        """Files and folders that could not be read at the last poll, with the reason; the others were."""

    def poll(self) -> bool:
        """Read what is new; returns whether there is a new position."""
        self.unread = False
        found = self._files.look()
        # Checked after listing, so that a folder that has just vanished does not appear to be empty.
        self.outage = None if found.files else self._files.absent()
        if self.outage is not None:
            return False
        listing, self.unreadable = found.files, found.unreadable
        now = self._clock()
        self.passed += max(now - self._now, timedelta(0))
        self._now = now
        # `_timestamp` orders rows by reading, even if the clock was set back since.
        at_micros = max(_micros(now), self._spool.newest_micros + 1)
        draft = Draft(self._spool, at_micros, self._options.buffer_size)
        try:
            waiting = self._follow_renames(listing, draft)
            due = [
                path
                for path, identity in listing.items()
                if self._done.get(path) != identity and path not in waiting
            ]
            self._files.expect(due)
            for path in due:
                if draft.bytes_added >= growth.STEP_BYTES:
                    self.unread = True
                    break
                self._look(path, listing[path], draft)
            self._drop_vanished(listing, waiting, draft)
            self._tell_unreadable()
            return draft.commit()
        except BaseException:
            draft.abandon()
            self._files.took_nothing()
            # Files before the one that failed were taken in vain: all are looked at again.
            self._done.clear()
            raise

    # --- one file ------------------------------------------------------------------------------------

    def _look(self, path: str, listed: Identity, draft: Draft) -> None:
        layout = layout_of(path, self._options)
        if layout is None:
            self._done[path] = listed
            return
        extent = draft.extent
        try:
            with self._files.open(path) as stream:
                # The file may have been replaced since it was listed;
                # the listing says nothing about this content.
                identity = self._files.identity(path, stream)
                if identity.place == listed.place:
                    quiet = self._quiet(path, identity)
                    self._look_into(Look(self._files, path, identity, layout, stream, quiet), draft)
                else:
                    self.unread = True
        except OSError as exc:
            if draft.extent != extent:
                # Part of the file is in the draft, which cannot be committed without the rest.
                with reading(path):
                    raise
            if isinstance(exc, FileNotFoundError):
                self.unread = True
            else:
                self.unreadable[path] = why(exc)

    def _look_into(self, look: Look, draft: Draft) -> None:
        path, bad = look.path, draft.bad_count
        old = draft.file(path)
        try:
            new = self._read(look, old, draft)
        except MovingFileError:
            new = None
        except SourceDataError as exc:
            self._damaged(look, exc, draft)
            return
        if new is None:
            self.unread = True
            return
        self._files.took(path, look.stream)
        if old is None or new.pieces != old.pieces or draft.bad_count != bad or draft.says(path):
            draft.set_file(path, new)
        else:
            # No row changed. After a crash the same state is found again, so it needs no journal entry.
            self._spool.files[path] = new
        self._finish(look, new, draft)

    def _read(self, look: Look, state: FileState | None, draft: Draft) -> FileState | None:
        """The file's new state; None while it is being written and has to be waited for."""
        if state is not None and state.blocks and self._intact(look, state):
            return (
                self._growth.take(look, state, draft)
                if not state.whole
                else replace(state, identity=look.identity)
            )
        head = read_at(look.stream, 0, HEAD)
        whole = look.layout.binary or look.layout.packed is not None or wide_encoding(head) is not None
        whole = whole or (look.layout.format == "json" and holds_document(head))
        whole = whole or (state is not None and state.whole)
        if not whole and (state is None or not state.blocks):
            return self._growth.take(look, state or FileState(look.identity), draft)
        if not look.quiet:
            return None
        if not whole and state is not None and self._waits(look, state, draft):
            return state
        if whole:
            return self._rewriter.whole(look, state, draft)
        new = self._rewriter.edited(look, state or FileState(look.identity), draft)
        return new if new.blocks else self._growth.take(look, new, draft)

    def _waits(self, look: Look, state: FileState, draft: Draft) -> bool:
        """Whether a file became a prefix of itself, which holds nothing new for a stream.

        It may be in the middle of being rewritten; its rows must not be read as new ones afterwards.
        """
        if self._table or self._once:
            return False
        if not self._rewriter.shortened(look, state, draft):
            return False
        log.warning("%s is shorter than it was; a stream keeps the rows that are gone from it", look.path)
        self._unverified.pop(look.path, None)
        return True

    def _intact(self, look: Look, state: FileState) -> bool:
        """Whether the file still begins with the content that was read.

        A `whole` file must be unchanged. Of a large growing file, the first and last block of the prefix are
        compared at once, and all blocks when the file is quiet or every few seconds: comparing gigabytes for
        each appended line would cost more than reading it.
        """
        if look.identity.size < state.consumed or (state.whole and look.identity.size != state.consumed):
            return False
        changed = look.identity != state.identity
        grown = look.identity.size > state.identity.size and look.identity.inode == state.identity.inode
        due = self.passed - self._unverified.get(look.path, self.passed) >= _VERIFY_EVERY
        thorough = not grown or look.quiet or due or state.consumed <= _VERIFIED_AT_ONCE
        if not changed and look.path not in self._unverified:
            return True
        if not changed and (same := self._files.same(look.path, look.stream)) is not None:
            # One that differs stays unverified until it has been read, which may fail.
            if same:
                self._unverified.pop(look.path, None)
            return same
        if not changed and look.path in self._compared:
            return self._compare(look, state)
        self._compared.pop(look.path, None)
        if not unchanged(look.stream, state.blocks, thorough=thorough):
            return False
        if thorough:
            self._unverified.pop(look.path, None)
        else:
            self._unverified.setdefault(look.path, self.passed)
        return True

    def _compare(self, look: Look, state: FileState) -> bool:
        """Compare some more of a large file with what an earlier process read of it."""
        reached = compared(look.stream, state.blocks, self._compared[look.path], VERIFIED_STEP)
        if reached is not None and reached < len(state.blocks):
            self._compared[look.path] = reached
            self.unread = True
            return True
        del self._compared[look.path]
        if reached is not None:
            del self._unverified[look.path]
        return reached is not None

    def _finish(self, look: Look, state: FileState, draft: Draft) -> None:
        """Decide whether the file has to be polled again even if its identity stays the same."""
        # So soon after a write, another may leave size and mtime unchanged: the content is compared later.
        if self._fresh(look):
            self._unverified.setdefault(look.path, self.passed)
        elif not state.blocks:
            self._unverified.pop(look.path, None)
        stepped = draft.bytes_added >= growth.STEP_BYTES
        all_taken = state.consumed >= look.identity.size or (look.quiet and not stepped)
        if all_taken and look.path not in self._unverified:
            self._done[look.path] = look.identity
        elif state.consumed < look.identity.size:
            self.unread = True

    def _fresh(self, look: Look) -> bool:
        """Whether the file may still change without being noticed."""
        if self._files.outlived(look.identity):
            return False
        grain = self._files.grain
        return self._age(look.path, look.identity) < grain + self._files.clocks and (
            not self._files.clocks or self._waited(look.path) < grain
        )

    def _damaged(self, look: Look, exc: SourceDataError, draft: Draft) -> None:
        if not look.quiet or not look.still:
            self.unread = True
            return
        state = draft.file(look.path) or FileState(look.identity)
        if state.damaged != look.identity:
            draft.add_bad(look.path, 0, b"", exc.message)
            draft.set_file(look.path, replace(state, damaged=look.identity))
        self._done[look.path] = look.identity

    def _quiet(self, path: str, identity: Identity) -> bool:
        if path not in self._first_seen or self._first_seen[path][0] != identity:
            self._first_seen[path] = identity, self.passed
        debounce = self._options.debounce
        return self._once or self._age(path, identity) >= debounce or self._waited(path) >= debounce

    def _age(self, path: str, identity: Identity) -> timedelta:
        """The time since a file was changed; for an mtime in the future, the time since it was first seen."""
        age = timedelta(microseconds=_micros(self._now) - identity.mtime_ns // 1000)
        return age if age >= timedelta(0) else self._waited(path)

    def _waited(self, path: str) -> timedelta:
        """How long a file has had its present identity, as far as was observed."""
        return self.passed - self._first_seen[path][1]

    # --- several files -------------------------------------------------------------------------------

    def _follow_renames(self, listing: dict[str, Identity], draft: Draft) -> set[str]:
        """Keep the rows of renamed files; returns the names whose rename could not be decided."""
        if not self._files.several or not self._files.renames:
            return set()
        states = dict(self._spool.files)
        found = find_renames(self._files, states, listing, self._options)
        self.unreadable.update(found.unreadable)
        for path in found.moved:
            draft.set_file(path, None)
            self._forget(path)
        for path, target in found.moved.items():
            if target in states and target not in found.moved:
                self._let_go(target, states[target], draft)
            draft.set_file(target, states[path])
        return found.undecided

    def _tell_unreadable(self) -> None:
        """Raise for an unreadable file that must be read: the only one, or one of `--once`."""
        if self.unreadable and (self._once or not self._files.several):
            path, reason = next(iter(self.unreadable.items()))
            with reading(path):
                raise OSError(reason)

    def _out_of_sight(self, path: str) -> bool:
        """Whether a missing file may exist in a folder that cannot be read."""
        return any(path == hidden or path.startswith(f"{hidden}/") for hidden in self.unreadable)

    def _drop_vanished(self, listing: dict[str, Identity], waiting: set[str], draft: Draft) -> None:
        for path in [p for p in self._vanished if p in listing]:
            del self._vanished[path]
        if not self._files.several:
            return
        for path, state in list(self._spool.files.items()):
            if path in listing or path in waiting or draft.file(path) is None or self._out_of_sight(path):
                continue
            since = self._vanished.setdefault(path, self.passed)
            if not self._once and self.passed - since < self._options.debounce:
                self.unread = True
                continue
            self._let_go(path, state, draft)
            draft.set_file(path, None)

    def _let_go(self, path: str, state: FileState, draft: Draft) -> None:
        """Retract the rows of a deleted file; a stream keeps them, with a warning in the log."""
        rows = draft.rows(state.pieces)
        if self._table:
            draft.cut(state.pieces, [(0, rows)])
        else:
            log.warning("%s is gone; a stream cannot retract its %d rows", path, rows)
        self._forget(path)

    def _forget(self, path: str) -> None:
        for memory in (self._vanished, self._done, self._unverified, self._compared, self._first_seen):
            memory.pop(path, None)


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
