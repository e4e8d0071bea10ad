"""The intent of a replay of dead letters, durable beside its job until the replay is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from velostream.disk.record import Record
from velostream.engine.bad_rows.letter import EDITION, KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from pathlib import Path

    from velostream.engine.bad_rows.dead_letters import DeadLetters
    from velostream.engine.outputs.outputs import JobOutput

log = structlog.get_logger("velostream.job")


class Pending:
    """One small record: which letters are deleted, or get a new reason, once the output has the replay."""

    def __init__(self, folder: Path, job_id: str, letters: DeadLetters) -> None:
        self._record = Record(folder / "replay.json", f"{job_id} replay", before=folder / "replay.jsonl")
        self._job_id = job_id
        self._letters = letters

    def intend(self, token: str, taken: Iterable[int], failing: Mapping[int, str]) -> None:
        """Make durable which letters will be deleted or get a new reason, before the replay is committed."""
        entry = {"token": token, "taken": sorted(taken), "failing": {str(n): r for n, r in failing.items()}}
        self._record.save(entry)

    def done(self) -> None:
        """Clear the intent: the letters were updated, or the replay was not committed."""
        self._record.save({})

    def settle(self, outputs: Iterable[JobOutput], at: datetime) -> None:
        """After a start: finish a replay that a crash interrupted, if an output has committed it."""
        entry = self._record.load()
        if not entry:
            return
        if any(output.replayed == entry["token"] for output in outputs):
            rows = self._letters.chosen([*entry["taken"], *map(int, entry["failing"])])
            numbers, jobs = rows[KEY].to_pylist(), rows[EDITION].to_pylist()
            mine = {number for number, job in zip(numbers, jobs, strict=True) if job == self._job_id}
            failing = {int(n): reason for n, reason in entry["failing"].items() if int(n) in mine}
            self._letters.answer(mine & set(entry["taken"]), failing, at)
            log.info("replay", job=self._job_id, reason="what a crash interrupted is done")
        self.done()
