"""What statements made outside, such as replication slots, and has to be removed with them.

A note is durable before anything is made, or a statement leaves the catalogue, and goes when all of it is
removed: after a crash, or where a server was away, the next opening of the directory tries again.
"""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING, Any

import structlog

from velostream.connectors.registry import connector_for
from velostream.disk.record import Record
from velostream.engine.opening.connect import release_sources
from velostream.model.statements import SourceRef
from velostream.model.uri import Uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from velostream.config import Settings
    from velostream.runtime.catalog.secrets import KeptSecrets

log = structlog.get_logger("velostream.jobs")


class Releases:
    """The notes of a data directory, by job. Thread safe."""

    def __init__(
        self,
        root: Path,
        folder: Callable[[str], Path],
        secrets: KeptSecrets,
        settings: Settings,
        *,
        read_only: bool,
    ) -> None:
        self._folder = folder
        self._secrets = secrets
        self._settings = settings
        self._record = Record(root / "releases.json", "releases")
        found = None if read_only else self._record.load()
        self._notes: dict[str, dict[str, Any]] = dict((found or {}).get("jobs", {}))
        self._lock = threading.Lock()
        self._closed = False

    def open(self, jobs: Iterable[str]) -> set[str]:
        """Forget notes of jobs that there are; returns the jobs whose folders are still needed."""
        with self._lock:
            there = self._notes.keys() & set(jobs)
            if there:
                self._save({job: note for job, note in self._notes.items() if job not in there})
            return set(self._notes)

    @property
    def texts(self) -> list[str]:
        """All texts that refer to kept secrets."""
        sources = [source for note in self._notes.values() for source in note.values()]
        return [text for each in sources for text in (each["uri"], *each["properties"].values())]

    def note(self, job: str, refs: Iterable[SourceRef]) -> None:
        """The sources of a job may make things outside, or are about to have them removed."""
        sources = {ref.id: self._hidden(ref) for ref in refs if connector_for(ref.uri).connector.provisions}
        with self._lock:
            if sources and self._notes.get(job) is None and not self._closed:
                self._save({**self._notes, job: sources})

    def forget(self, job: str) -> None:
        """The job is in the catalogue, or has nothing outside any more."""
        with self._lock:
            if job in self._notes and not self._closed:
                self._save({other: note for other, note in self._notes.items() if other != job})

    def release(self, job: str, refs: Sequence[SourceRef]) -> bool:
        """Remove what the sources of a job made; False where something could not be reached."""
        self.note(job, refs)
        if not release_sources(refs, self._settings, self._folder(job), job):
            return False
        self.forget(job)
        return True

    def retry(self) -> None:
        """Try again what an earlier run could not remove, beside everything else."""
        if self._notes:
            threading.Thread(target=self._retry, name="releases", daemon=True).start()

    def _retry(self) -> None:
        for job, note in list(self._notes.items()):
            refs = [self._shown(id_, each) for id_, each in note.items()]
            if not self._closed and self.release(job, refs) and not self._closed:
                log.info("removed what was left behind", job=job)
                shutil.rmtree(self._folder(job), ignore_errors=True)

    def close(self) -> None:
        """Write nothing any more."""
        with self._lock:
            self._closed = True

    def _save(self, notes: Mapping[str, dict[str, Any]]) -> None:
        self._record.save({"jobs": dict(notes)})
        self._notes = dict(notes)

    def _hidden(self, ref: SourceRef) -> dict[str, Any]:
        hide = self._secrets.hide
        properties = {name: hide(_written(name, value)) for name, value in ref.properties.items()}
        return {"uri": hide(ref.uri.text), "properties": properties}

    def _shown(self, id_: str, source: Mapping[str, Any]) -> SourceRef:
        show = self._secrets.show
        properties = {
            name: show(text)[len(_written(name, "")) - 1 : -1] for name, text in source["properties"].items()
        }
        return SourceRef(id_, Uri(show(source["uri"])), properties)


def _written(name: str, value: str) -> str:
    """A property as in a statement, where secrets are recognised by their names."""
    return f'"{name}" = "{value}"'
