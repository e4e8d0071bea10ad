"""The metadata of a Delta table in each of its commits: version, counts, and the positions it contains."""

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
"""The file beside the rows with the newest commit that only advanced positions, without a Delta commit."""


@dataclass(frozen=True)
class State:
    """One commit of the table, as its Delta commit records it, in one step with the rows."""

    number: int = 0
    """The table's version: counts commits that changed rows."""
    sequence: int = 0
    """Counts all commits; Delta's transaction number, by which it rejects a commit that it already has."""
    next_row: int = 0
    """No row has this number or a greater one."""
    rows: int = 0
    """Rows that readers see."""
    changed: int = 0
    """Rows added and removed since the table was created."""
    floor: int = 0
    """The version of the last schema change; changes before it are not available."""
    commit: Commit | None = None
    physical: int | None = None
    """Delta's version number; None before the first Delta commit."""

    def text(self) -> str:
        """For Delta's log."""
        data = {name: getattr(self, name) for name in _COUNTS}
        return json.dumps({"velostream": 1, **data, "commit": _commit_data(self.commit)})

    @staticmethod
    def from_data(data: dict[str, Any], physical: int | None) -> State:
        """The state from the parsed text of a commit."""
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
    """The state of the newest commit: in Delta's log, or a later one that only advanced positions."""
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
