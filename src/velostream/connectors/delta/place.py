"""The folder of a table: whether a table is there or can be made, and its files, made durable."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltalake import DeltaTable

from velostream.disk.sealed_json import sync_folder
from velostream.errors import SinkConfigError, SinkError, SinkMissingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from velostream.connectors.delta.options import DeltaOptions

_LOG = "_delta_log"


def folder_of(options: DeltaOptions) -> Path:
    """The folder of the table, absolute."""
    if not options.path:
        raise SinkConfigError("a Delta Lake table needs a path", hint="write delta:///folder/table")
    path = Path(options.path).expanduser().absolute()
    if "://" in options.path:
        raise SinkConfigError(
            f'"{options.path}" is not a folder of this machine', hint="write delta:///folder"
        )
    if unquote(str(path)) != str(path):
        raise SinkConfigError(f'"{path}" has a percent sign that Delta Lake would decode', hint="rename it")
    return path


def table_there(folder: Path) -> bool:
    """Whether the folder holds a table."""
    return (folder / _LOG).is_dir() and DeltaTable.is_deltatable(folder.as_uri())


def check_place(folder: Path, *, make: bool) -> None:
    """Raise SinkError where there is no table, and none can be made, or is to be made."""
    try:
        _check_place(folder, make=make)
    except OSError as exc:
        reason = (exc.strerror or str(exc)).lower()
        raise SinkError(f'"{folder}" cannot be looked at: {reason}') from exc


def _check_place(folder: Path, *, make: bool) -> None:
    if table_there(folder):
        if not os.access(folder / _LOG, os.W_OK):
            raise SinkError(f'"{folder}" cannot be written: permission denied')
        return
    if not make:
        raise SinkMissingError(
            f'"{folder}" holds no Delta Lake table',
            hint='check the path; or WITH ("table.create.if.missing" = "true")',
        )
    if folder.exists() and not folder.is_dir():
        raise SinkError(f'"{folder}" is a file, and no folder of a table')
    if folder.is_dir() and any(folder.iterdir()):
        raise SinkError(
            f'"{folder}" holds files, and no Delta Lake table', hint="name a folder that is new, or empty"
        )
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(there, os.W_OK):
        raise SinkError(f'"{folder}" cannot be written: permission denied')


def commit_mark(folder: Path, version: int) -> tuple[int, int, int] | None:
    """What tells a commit from another one of the same number; None where its file is gone."""
    try:
        found = _log_file(folder, version).stat()
    except FileNotFoundError:
        return None
    return version, found.st_ino, found.st_mtime_ns


def commit_of(folder: Path, version: int, owner: str) -> int | None:
    """The number that a commit gives this application's transaction."""
    for action in _actions(folder, version):
        made = action.get("txn")
        if made is not None and made["appId"] == owner:
            return int(made["version"])
    return None


def sync_commits(folder: Path, versions: Iterable[int]) -> dict[Path, int]:
    """Make commits durable, with the files that they added; tells these, and how long they are to be."""
    folders = {folder, folder / _LOG}
    files: dict[Path, int] = {}
    for version in versions:
        for action in _actions(folder, version):
            added = action.get("add")
            if added is not None:
                file = folder / unquote(added["path"])
                files[file] = added["size"]
                folders |= {file.parent, *(parent for parent in file.parents if folder in parent.parents)}
        _sync_file(_log_file(folder, version))
    for file in files:
        _sync_file(file)
    for each in folders:
        sync_folder(each)
    return files


def check_whole(files: Mapping[Path, int], table: str) -> None:
    """Raise SinkError where a file is shorter than its commit says, as a loss of power can leave it."""
    for file, size in files.items():
        if file.exists() and file.stat().st_size != size:
            raise SinkError(
                f'{table} was damaged when the machine went down: "{file.name}" is not whole',
                hint="delete the newest commit of _delta_log, which names the file: it is written again",
            )


def _log_file(folder: Path, version: int) -> Path:
    return folder / _LOG / f"{version:020}.json"


def _actions(folder: Path, version: int) -> list[dict[str, Any]]:
    # A commit that is old enough is kept in a checkpoint alone.
    try:
        lines = _log_file(folder, version).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.strip()]


def _sync_file(path: Path) -> None:
    # A file that others removed again, by a vacuum, need not be durable.
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
