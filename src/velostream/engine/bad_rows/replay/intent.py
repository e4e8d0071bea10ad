"""What a replay of dead letters is about to do, kept beside its job until it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from velostream.connectors.record import Record
from velostream.engine.bad_rows.letter import EDITION, KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from pathlib import Path

    from velostream.engine.bad_rows.dead_letters import DeadLetters
    from velostream.engine.outputs.outputs import JobOutput

log = structlog.get_logger("velostream.job")


class Pending:
    """One small record: which letters leave, or get another reason, if the output has recorded the replay."""

    def __init__(self, folder: Path, job_id: str, letters: DeadLetters) -> None:
        self._record = Record(folder / "replay.json", f"{job_id} replay", before=folder / "replay.jsonl")
        self._job_id = job_id
        self._letters = letters

    def intend(self, token: str, taken: Iterable[int], failing: Mapping[int, str]) -> None:
        """Make durable what happens to letters once the output has recorded the replay."""
        entry = {"token": token, "taken": sorted(taken), "failing": {str(n): r for n, r in failing.items()}}
        self._record.save(entry)

    def done(self) -> None:
        """The letters are as intended, or the replay did not take place."""
        self._record.save({})

    def settle(self, outputs: Iterable[JobOutput], at: datetime) -> None:
        """After a start: end what an earlier one began."""
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
