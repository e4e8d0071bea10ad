"""The spool: a durable, replayable copy of everything read from files.

A file changes after it was read, so its records are first copied to immutable segments, and one journal entry
per poll makes them part of the next position. Positions are replayable: the changes between two positions,
and the live segments at one, are the same forever, or until `forget`. Compaction changes where records are
stored, never which records there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from velostream.connectors.base import log
from velostream.connectors.files.spool.segments import FileState, PieceId, Segment, SpooledBadRow
from velostream.disk.full_disk import storing
from velostream.disk.journal import Journal
from velostream.disk.private import make_folder
from velostream.disk.sealed_json import checksum, damaged, sync_folder
from velostream.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

_NAME_DIGITS = 9
COMPACT_ENTRIES = 200
"""So many positions that nobody asks for any more are folded into one."""
_COMPACT_BYTES = 64 * 1024 * 1024
INDEX, INSTANTS = ".index", ".instants"
"""Suffixes of the files beside a segment: offsets of its records, and when they were read."""


Moves = Mapping[str, list[list[PieceId]]]
"""By segment, for each of its pieces, the pieces that hold its records now."""


@dataclass
class Entry:
    """The journal entry of one position: its changes to the position before.

    `added` segments become live. `replaced` maps a segment to the segments that hold the same records from
    now on; `moved` maps each of its pieces to theirs. Then `removed` segments are retracted.
    """

    position: int
    added: list[Segment] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    replaced: dict[str, list[Segment]] = field(default_factory=dict)
    moved: dict[str, list[list[PieceId]]] = field(default_factory=dict)
    files: dict[str, FileState | None] = field(default_factory=dict)
    bad: list[SpooledBadRow] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For the journal."""
        return {
            "position": self.position,
            "added": [segment.as_json() for segment in self.added],
            "removed": self.removed,
            "replaced": {name: [s.as_json() for s in parts] for name, parts in self.replaced.items()},
            "moved": self.moved,
            "files": {p: None if state is None else state.as_json() for p, state in self.files.items()},
            "bad": self.bad,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Entry:
        """From the journal."""
        return cls(
            data["position"],
            [Segment.from_json(item) for item in data["added"]],
            list(data["removed"]),
            {name: [Segment.from_json(item) for item in parts] for name, parts in data["replaced"].items()},
            _moves(data["moved"]),
            {p: None if state is None else FileState.from_json(state) for p, state in data["files"].items()},
            [SpooledBadRow(*item) for item in data["bad"]],
        )

    def segments(self) -> Iterable[Segment]:
        """Every segment that the entry introduces."""
        yield from self.added
        for parts in self.replaced.values():
            yield from parts


class Spool:
    """Segments and journal of one source. Not thread safe."""

    def __init__(self, folder: Path, owner: str = "", *, resumed: bool = False) -> None:
        self.folder = folder
        self.segment_folder = folder / "segments"
        with storing(folder):
            make_folder(self.segment_folder)
        kept = resumed or any(self.segment_folder.iterdir())
        self._journal = Journal(folder / "journal", f"{owner} journal", required=kept)
        self._checked: set[Path] = set()
        """Files whose checksum was verified in this process."""
        self._tidy = False
        self.oldest = 0
        """The first position whose changes can still be read."""
        self._base: dict[str, Segment] = {}
        self._entries: list[Entry] = []
        self._folded = 0
        self._dead_bytes = 0
        self.position = 0
        self.newest_micros = 0
        """When the latest records were read."""
        self.live: dict[str, Segment] = {}
        """Live segments by name, oldest first."""
        self.files: dict[str, FileState] = {}
        self._load()
        self._next_name = self._highest_name() + 1

    # --- reading -------------------------------------------------------------------------------------

    def place(self, name: str, beside: str = "") -> Path:
        """The path at which a segment, or a file beside it, is written."""
        return self.segment_folder / f"{name}{beside}"

    def path(self, segment: Segment) -> Path:
        """The path of a segment, to be read; CorruptDataError when its checksum does not match."""
        return self._as_written(self.place(segment.name), segment.sums[:1], segment.size)

    def index_path(self, segment: Segment) -> Path:
        """The path of the offsets of an indexed segment's records, likewise verified."""
        return self._as_written(self.place(segment.name, INDEX), segment.sums[1:2], 8 * segment.rows)

    def instants_path(self, segment: Segment) -> Path:
        """The path of the instants of a merged segment's records, likewise verified."""
        last = 2 if segment.indexed else 1
        return self._as_written(self.place(segment.name, INSTANTS), segment.sums[last : last + 1], None)

    def _as_written(self, path: Path, sums: tuple[int, ...], size: int | None) -> Path:
        """Verify a file once per process: it may have been damaged since an earlier one wrote it."""
        if path in self._checked:
            return path
        if not path.is_file():
            raise damaged(path, "is missing")
        if size is not None and path.stat().st_size != size:
            raise damaged(path, "is cut off", f"it has {path.stat().st_size} bytes, not {size}")
        if sums and checksum(path) != sums[0]:
            raise damaged(path, "is damaged: its checksum does not match")
        self._checked.add(path)
        return path

    def resume(self, position: int) -> None:
        """Continue after `position`, which the job has reached; only then are unreferenced files deleted.

        Raises CorruptDataError where the spool is older than the position: an older journal, as from a
        backup, does not know newer segments, which must not be deleted.
        """
        if self._tidy:
            return
        if position > self.position:
            raise damaged(
                self._journal.path,
                "is older than what was made of it",
                f"it ends with position {self.position}, and position {position} was read",
            )
        self._remove_orphans()
        self._tidy = True

    def settled(self, position: int) -> list[Segment | None]:
        """The segments that are live at `position`, oldest first; None for those no longer live now."""
        return [self.live.get(segment.name) for segment in self.snapshot(position)]

    def snapshot(self, position: int) -> list[Segment]:
        """The segments that are live at a position, oldest first."""
        if position == self.position:
            return list(self.live.values())
        self._require(position)
        live = dict(self._base)
        for entry in self._entries:
            if entry.position <= position:
                _apply(entry, live)
        return list(live.values())

    def changes(self, start: int, end: int) -> list[tuple[Segment, int]]:
        """Segments with weight +1 or -1: the changes from one position to a later one."""
        self._require(start)
        known = {segment.name: segment for segment in self._base.values()}
        # `replaced` is no change: the parts hold the same records. A
        # segment that was added and removed in between cancels out.
        weights: dict[str, int] = {}
        for entry in self._entries:
            known.update({segment.name: segment for segment in entry.segments()})
            if start < entry.position <= end:
                for segment in entry.added:
                    weights[segment.name] = weights.get(segment.name, 0) + 1
                for name in entry.removed:
                    weights[name] = weights.get(name, 0) - 1
        return [(known[name], weight) for name, weight in weights.items() if weight]

    def bad(self, start: int, end: int) -> list[SpooledBadRow]:
        """Records of a range that never became rows; those before `forget` are gone."""
        return [row for entry in self._entries if start < entry.position <= end for row in entry.bad]

    def _require(self, position: int) -> None:
        if not self.oldest <= position <= self.position:
            raise damaged(
                self._journal.path,
                f"does not keep position {position}",
                f"it keeps {self.oldest} to {self.position}; "
                "the position belongs to another copy of the data directory",
            )

    # --- writing -------------------------------------------------------------------------------------

    def new_name(self, suffix: str) -> str:
        """A new segment name."""
        name = f"{self._next_name:0{_NAME_DIGITS}d}.{suffix}"
        self._next_name += 1
        return name

    def append(self, entry: Entry) -> None:
        """Make an entry the next position; its segments must be durable."""
        # The names of segments must be durable before a journal entry refers to them.
        if any(True for _ in entry.segments()):
            sync_folder(self.segment_folder)
        self._journal.append(entry.as_json())
        self._take(entry)

    def merge(self, position: int, merged: Segment, moved: Moves) -> None:
        """Compaction: replace the segments that `moved` names by one, which must be durable.

        They are live at `position` and now. Ranges that begin before `position` are forgotten.
        """
        sync_folder(self.segment_folder)
        self._journal.append({"merge": position, "into": merged.as_json(), "moved": moved})
        self._take_merge(position, merged, moved)

    def forget(self, position: int) -> None:
        """Ranges that begin before `position` will not be read again; compacts when that is worthwhile."""
        done = [entry for entry in self._entries if entry.position <= position]
        dead = self._dead_bytes + sum(self._dead(entry) for entry in done)
        if self._folded + len(done) >= COMPACT_ENTRIES or dead >= _COMPACT_BYTES:
            try:
                with storing(self.folder):
                    self.compact(position)
            except StorageError as exc:
                # A longer journal loses nothing; it is tried again at the next commit.
                log.warning("a journal could not be shortened: %s", exc.message)

    def compact(self, position: int) -> None:
        """Compaction: fold the entries up to `position` into one, and delete unreferenced segments."""
        self._require(position)
        self._fold(position)
        # The base holds the current state of all files, so that later entries need not repeat it.
        self._entries = [replace(entry, files={}) for entry in self._entries]
        base = {
            "base": position,
            "live": [segment.as_json() for segment in self._base.values()],
            "files": {path: state.as_json() for path, state in self.files.items()},
            "newest": self.newest_micros,
        }
        self._journal.rewrite([base, *(entry.as_json() for entry in self._entries)])
        self._folded = self._dead_bytes = 0
        self._remove_orphans()

    def _fold(self, position: int) -> None:
        """Make `position` the oldest that can be read."""
        for entry in self._entries:
            if entry.position <= position:
                self._dead_bytes += self._dead(entry)
                self._folded += 1
                _apply(entry, self._base)
        self._entries = [entry for entry in self._entries if entry.position > position]
        self.oldest = position

    def _dead(self, entry: Entry) -> int:
        return sum(self._size(name) for name in (*entry.removed, *entry.replaced))

    def _size(self, name: str) -> int:
        path = self.segment_folder / name
        return path.stat().st_size if path.exists() else 0

    # --- state ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Record the length of the journal, and close it."""
        self._journal.close()

    def _load(self) -> None:
        for data in self._journal.load():
            if "base" in data:
                self.oldest = self.position = data["base"]
                self._base = {item["n"]: Segment.from_json(item) for item in data["live"]}
                self.live = dict(self._base)
                known = max((segment.at_micros for segment in self._base.values()), default=0)
                self.newest_micros = data.get("newest", known)
                self.files = {path: FileState.from_json(state) for path, state in data["files"].items()}
            elif "merge" in data:
                self._take_merge(data["merge"], Segment.from_json(data["into"]), _moves(data["moved"]))
            else:
                self._take(Entry.from_json(data))

    def _take(self, entry: Entry) -> None:
        if entry.position != self.position + 1:
            raise damaged(self._journal.path, f"is damaged: entry {entry.position} follows {self.position}")
        _apply(entry, self.live)
        if entry.moved:
            self._move_pieces(entry.moved)
        for path, state in entry.files.items():
            if state is None:
                self.files.pop(path, None)
            else:
                self.files[path] = state
        self._entries.append(entry)
        self.position = entry.position
        self.newest_micros = max([self.newest_micros, *(segment.at_micros for segment in entry.added)])

    def _take_merge(self, position: int, merged: Segment, moved: Moves) -> None:
        self._fold(position)
        first, *others = moved
        for live in (self._base, self.live):
            _put_in_place(live, {first: [merged], **{name: [] for name in others}})
        self._move_pieces(moved)
        self._folded += 1
        self._dead_bytes += sum(self._size(name) for name in moved)

    def _move_pieces(self, moved: Moves) -> None:
        for path, state in self.files.items():
            if any(piece.segment in moved for piece in state.pieces):
                # Neighbouring pieces may have become one piece.
                moves = [piece for piece, _ in groupby(resolve(state.pieces, moved))]
                self.files[path] = state.with_pieces(tuple(moves))

    def _remove_orphans(self) -> None:
        """Delete leftovers of a crash or a full disk, and segments that nothing refers to."""
        known = {*self._base, *(segment.name for entry in self._entries for segment in entry.segments())}
        for path in self.segment_folder.iterdir():
            name = path.name
            for suffix in (INDEX, INSTANTS):
                name = name.removesuffix(suffix)
            if name not in known:
                path.unlink(missing_ok=True)

    def _highest_name(self) -> int:
        names = [*self._base, *(segment.name for entry in self._entries for segment in entry.segments())]
        return max((int(name[:_NAME_DIGITS]) for name in names), default=0)


def _moves(data: Mapping[str, Any]) -> dict[str, list[list[PieceId]]]:
    return {name: [[PieceId(*piece) for piece in ids] for ids in moves] for name, moves in data.items()}


def resolve(pieces: Iterable[PieceId], moved: Moves) -> Iterable[PieceId]:
    """The pieces that hold the records now, following moves transitively."""
    for piece in pieces:
        if piece.segment in moved:
            yield from resolve(moved[piece.segment][piece.number], moved)
        else:
            yield piece


def _apply(entry: Entry, live: dict[str, Segment]) -> None:
    live.update({segment.name: segment for segment in entry.added})
    if entry.replaced:
        _put_in_place(live, entry.replaced)
    for name in entry.removed:
        live.pop(name, None)


def _put_in_place(live: dict[str, Segment], replaced: Mapping[str, Sequence[Segment]]) -> None:
    """Replace segments in place, so that the order is still that of age."""

    def now(segment: Segment) -> Iterable[Segment]:
        if segment.name not in replaced:
            return (segment,)
        return chain.from_iterable(map(now, replaced[segment.name]))

    ordered = {part.name: part for segment in live.values() for part in now(segment)}
    live.clear()
    live.update(ordered)
