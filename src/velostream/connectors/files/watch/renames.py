"""Renames: a file with a known inode, that begins with the content read, under another name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from velostream.connectors.files.place import why
from velostream.connectors.files.spool.content import unchanged
from velostream.connectors.files.watch.layout import layout_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from velostream.connectors.files.options import FilesOptions
    from velostream.connectors.files.place import Place
    from velostream.connectors.files.spool.segments import FileState, Identity


@dataclass
class Renames:
    """The renamed files among those that were read."""

    moved: dict[str, str] = field(default_factory=dict)
    """From old names to new ones. Another file may have the old name, as after log rotation."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """New names of files that cannot be compared now, with the reason."""
    undecided: set[str] = field(default_factory=set)
    """The old names of the unreadable ones."""


def find_renames(
    place: Place, files: Mapping[str, FileState], listing: Mapping[str, Identity], options: FilesOptions
) -> Renames:
    """Find renames by comparing the files that were read with those that exist.

    A file system reuses the inode of a deleted file, so the content decides. A name that implies another
    format is never a rename, since the rows would differ.
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
    # A file that is still under its own name is not the new name of another.
    taken = files.keys() - set(away)
    for path in away:
        state = files[path]
        target = names.get(state.identity.place)
        if target is None or target in taken or not state.blocks:
            continue
        if layout_of(path, options) != layout_of(target, options):
            continue
        try:
            same = _begins_with(place, target, listing[target], state)
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


def _begins_with(place: Place, path: str, identity: Identity, state: FileState) -> bool:
    if identity.size < state.consumed or (state.whole and identity.size != state.consumed):
        return False
    with place.open(path) as stream:
        return unchanged(stream, state.blocks, thorough=True)
