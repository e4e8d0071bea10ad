"""Files that have another name now: they lie in the same place of the disk and begin with what was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from velostream.connectors.file.spool.content import unchanged
from velostream.connectors.file.watch.layout import layout_of
from velostream.connectors.file.watch.paths import why

if TYPE_CHECKING:
    from collections.abc import Mapping

    from velostream.connectors.file.options import FileOptions
    from velostream.connectors.file.spool.segments import FileState, Identity


@dataclass
class Renames:
    """What became of the names that no longer stand for the files that were read under them."""

    moved: dict[str, str] = field(default_factory=dict)
    """New names by old ones. Another file may stand under the old one, as after a rotation of logs."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """New names of files that cannot be compared for now, with the reason."""
    undecided: set[str] = field(default_factory=set)
    """Their old names."""


def find_renames(
    files: Mapping[str, FileState], listing: Mapping[str, Identity], options: FileOptions
) -> Renames:
    """Compare the files that were read with those that are there.

    A system uses the place of a deleted file again, so that its content decides. A name that says another
    format is no name for the same rows.
    """
    found = Renames()
    away = [
        path
        for path, state in files.items()
        if path not in listing or listing[path].inode != state.identity.inode
    ]
    if not away:
        return found
    names = {identity.place: path for path, identity in listing.items()}
    # A file that stands where it was read is not the new name of another.
    taken = files.keys() - set(away)
    for path in away:
        state = files[path]
        target = names.get(state.identity.place)
        if target is None or target in taken or not state.blocks:
            continue
        if layout_of(path, options) != layout_of(target, options):
            continue
        try:
            same = _begins_with(target, listing[target], state)
        except FileNotFoundError:
            continue
        except OSError as exc:
            found.unreadable[target] = why(exc)
            found.undecided.add(path)
            continue
        if same:
            found.moved[path] = target
            taken.add(target)
    return found


def _begins_with(path: str, identity: Identity, state: FileState) -> bool:
    if identity.size < state.consumed or (state.whole and identity.size != state.consumed):
        return False
    with Path(path).open("rb") as stream:
        return unchanged(stream, state.blocks, thorough=True)
