"""The state of a Delta table when it was closed, to detect damage: version and checksums of Delta's log."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from velostream.disk.sealed_json import checksum
from velostream.engine.delta.commit_metadata import POSITION
from velostream.errors import CorruptDataError
from velostream.serving.durable import description
from velostream.serving.durable.damage import corrupt

if TYPE_CHECKING:
    from pathlib import Path

    from velostream.engine.delta.commit_metadata import State
    from velostream.engine.delta.log import DeltaLog
    from velostream.serving.durable.description import Description

log = logging.getLogger("velostream.delta")


@dataclass(frozen=True)
class Noted:
    """The state that closing a table records."""

    sequence: int = 0
    """See `State.sequence`."""
    description: int = 0
    """See `Description.number`."""
    log: dict[str, int] = field(default_factory=dict)
    """Files of Delta's log, with their checksums."""


def note(folder: Path, of: Description, at: State, written: DeltaLog) -> None:
    """Record the state; if that fails, only the check at the next start is lost."""
    content = Noted(at.sequence, of.number, _sums(written))
    try:
        description.write(folder / description.CLOSED, asdict(content), of=of.id)
    except OSError as exc:
        log.warning('cannot write in "%s": %s; only a check is lost', folder, exc.strerror)


def check(folder: Path, of: Description, written: DeltaLog) -> Noted:
    """The recorded state; raises CorruptDataError where the description or Delta's log differs from it."""
    try:
        data = description.read(folder / description.CLOSED, of.id)
    except CorruptDataError as exc:
        log.warning("%s; it is not needed and will be written again", exc.message)
        data = None
    noted = Noted(**data) if data is not None else Noted()
    if noted.description > of.number:
        raise corrupt(f'file "{folder / description.DESCRIPTION}" is older than the table')
    found = _sums(written)
    for name, expected in noted.log.items():
        if found.get(name, expected) != expected:
            raise corrupt(f'file "{written.folder / name}" is damaged', "its checksum does not match")
    return noted


def check_reached(folder: Path, noted: Noted, at: State, written: DeltaLog) -> None:
    """Raise CorruptDataError where the table is older than recorded, or one of its files is missing."""
    missing = sorted(noted.log.keys() - _sums(written).keys())
    if at.sequence < noted.sequence or (missing and at.sequence == noted.sequence):
        gone = written.folder / missing[-1] if missing else folder / POSITION
        raise corrupt(
            f'file "{gone}" is missing, or older than it was',
            f"the table is at step {at.sequence}, and was at {noted.sequence} when it was closed",
        )
    for path, size in written.live().items():
        if not path.is_file():
            raise corrupt(f'file "{path}" is missing')
        if size is not None and path.stat().st_size != size:
            raise corrupt(f'file "{path}" is cut off', f"{path.stat().st_size} bytes instead of {size}")


def _sums(written: DeltaLog) -> dict[str, int]:
    """Checksums of the files of Delta's log that define the newest version."""
    found = written.folder.iterdir() if written.folder.is_dir() else ()
    return {
        path.name: checksum(path)
        for path in sorted(found)
        if path.suffix in (".json", ".parquet") and path.is_file() and not path.name.startswith((".", "_"))
    }
