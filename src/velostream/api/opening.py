"""`velostream.connect`: who holds the data directory decides how it is reached."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from velostream.api.attached import AttachedDatabase
from velostream.api.database import Database
from velostream.api.local import LocalDatabase
from velostream.api.reader import ReadDatabase
from velostream.config import load
from velostream.errors import ConfigError, DataDirError
from velostream.runtime.instance import Instance
from velostream.runtime.socket.client import held

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from velostream.config import Settings


@dataclass(frozen=True)
class _Opened:
    database: Database
    settings: Settings
    attached: bool = False


_opened: dict[tuple[int, Path, bool], _Opened] = {}
"""What this process has opened, by process id (a fork has none), data directory, and whether to read only."""
_opening = RLock()


def connect(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    read_only: bool = False,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    config: str | os.PathLike[str] | None = None,
    allowed_roots: Iterable[str | os.PathLike[str]] | None = None,
    allowed_hosts: Iterable[str] | None = None,
) -> Database:
    """Open a data directory and resume its jobs; Spark starts when it is first needed.

    Where another process holds the directory, that process is asked through its socket. With `read_only`,
    tables are read without Spark and nothing is changed, whether or not a process holds the directory.
    Called again in this process, it returns the database that is open.

    With `allowed_roots`, statements read and write files in these folders only; with `allowed_hosts` they
    name these hosts only (`broker:9092`, `*.internal`). Both replace the settings of the configuration file.
    """
    given: dict[str, Any] = {"master": master, "conf": dict(conf) if conf else None}
    if allowed_roots is not None or allowed_hosts is not None:
        given["allowed"] = {
            "roots": None if allowed_roots is None else [Path(root).absolute() for root in allowed_roots],
            "hosts": None if allowed_hosts is None else list(allowed_hosts),
        }
    given = {name: value for name, value in given.items() if value is not None}
    where = {} if data_dir is None else {"data_dir": data_dir}
    settings = load(Path(config) if config else None, **where, **given)
    root = settings.data_dir.absolute()
    with _opening:
        for each in [place for place, opened in _opened.items() if opened.database.closed]:
            del _opened[each]
        place = (os.getpid(), root.resolve(), read_only)
        before = _opened.get(place)
        if before is None or (before.attached and not held(root)):
            # The process that held it has ended: it is opened here.
            before = _opened[place] = _open(settings, root, given, read_only=read_only)
        elif before.attached:
            _check_free(root, given)
        else:
            _check_same(settings, before.settings, given)
        return before.database


def _open(settings: Settings, root: Path, given: Mapping[str, Any], *, read_only: bool) -> _Opened:
    if read_only:
        return _Opened(Database(ReadDatabase(settings), root, ", read only"), settings)
    if not held(root):
        try:
            return _Opened(Database(LocalDatabase(Instance(settings)), root), settings)
        except DataDirError:
            # Another process may have opened it since.
            if not held(root):
                raise
    _check_free(root, given)
    database = Database(AttachedDatabase(root), root, ", of another process")
    return _Opened(database, settings, attached=True)


def _check_free(root: Path, given: Mapping[str, Any]) -> None:
    """Refuse settings for the process that holds the directory, which has its own."""
    if given:
        raise ConfigError(
            f"data directory {root} is held by another process, whose {_names(given)} cannot be changed",
            hint="connect without them to use that process, or stop it first",
        )


def _check_same(now: Settings, before: Settings, given: Mapping[str, Any]) -> None:
    different = [name for name in given if getattr(now, name) != getattr(before, name)]
    if different:
        raise ConfigError(
            f"data directory {before.data_dir} is open in this process with another {_names(different)}",
            hint="close it first",
        )


def _names(given: Iterable[str]) -> str:
    return " and ".join(given)
