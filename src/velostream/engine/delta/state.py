"""What a Delta table says about itself in each commit: version, counts, and the positions it contains."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from velostream.model.changes import Commit
from velostream.serving.durable import description

if TYPE_CHECKING:
    from pathlib import Path

    from velostream.engine.delta.log import DeltaLog

POSITION = "position.json"
"""Beside the rows: the newest commit that only moved positions on, which costs no commit of Delta's."""


@dataclass(frozen=True)
class State:
    """One commit of the table, as its Delta commit records it, in one step with the rows."""

    number: int = 0
    """The table's version: counts commits that changed rows."""
    sequence: int = 0
    """Counts all commits; Delta refuses one that it has seen."""
    next_row: int = 0
    """No row has this number or a greater one."""
    rows: int = 0
    """Rows that readers see."""
    changed: int = 0
    """Rows that came and went since the table was made."""
    floor: int = 0
    """Changes after versions before this one are not kept: the columns were others."""
    commit: Commit | None = None
    physical: int | None = None
    """Delta's number of the version; None while nothing was written."""

    def text(self) -> str:
        """For Delta's log."""
        data = {name: getattr(self, name) for name in _COUNTS}
        return json.dumps({"velostream": 1, **data, "commit": _commit_data(self.commit)})

    @staticmethod
    def from_data(data: dict[str, Any], physical: int | None) -> State:
        """What `text` gave."""
        return State(
            **{name: int(data[name]) for name in _COUNTS},
            commit=_commit(data["commit"]),
            physical=physical,
        )


_COUNTS = ("number", "sequence", "next_row", "rows", "changed", "floor")


def _commit_data(commit: Commit | None) -> dict[str, Any] | None:
    if commit is None:
        return None
    return {
        "checkpoint": commit.checkpoint,
        "batch": commit.batch,
        "offsets": {name: dict(offset) for name, offset in commit.offsets.items()},
        "at": commit.at.isoformat(),
        "extra": dict(commit.extra),
    }


def _commit(data: dict[str, Any] | None) -> Commit | None:
    if data is None:
        return None
    at = datetime.fromisoformat(data["at"])
    return Commit(data["checkpoint"], data["batch"], data["offsets"], at, data["extra"])


def load(folder: Path, log: DeltaLog) -> State:
    """The newest commit: in Delta's log, or one after it that only moved positions."""
    found = State()
    versions = log.versions()
    for version in reversed(versions):
        said, _ = log.said(version)
        if said is not None:
            # What another program did since (OPTIMIZE, say) changed no row, or is not ours to undo.
            found = State.from_data(said, versions[-1])
            break
    moved = description.read(folder / POSITION)
    if moved is not None and int(moved["sequence"]) > found.sequence:
        return replace(State.from_data(moved, found.physical), physical=found.physical)
    return found


def move(folder: Path, state: State) -> None:
    """Make a commit durable that changed no row."""
    description.write(folder / POSITION, json.loads(state.text()))
