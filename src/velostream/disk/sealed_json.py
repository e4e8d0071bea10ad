"""Small durable files: JSON with a checksum and an owner, replaced atomically."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from velostream.disk.private import open_file
from velostream.errors import CorruptDataError

if TYPE_CHECKING:
    from pathlib import Path

ASIDE = ".new"
"""Suffix of a file that is being written, before it is renamed over the previous one."""

_PIECE = 4 << 20
_MARK = " #"
_OF, _NUMBER, _CHECKSUM = "of", "times written", "checksum"
"""Keys beside the value, which no value has."""


@dataclass(frozen=True)
class Sealed:
    """The content of a file."""

    value: dict[str, Any]
    of: str | None = None
    """The owner; None in files without one."""
    number: int = 0
    """How often the file was written: an older version has a smaller number."""
    checked: bool = True
    """Whether it has a checksum; files of earlier versions had none."""


def signed(of: str, token: str) -> str:
    """Owner and token: distinguishes files of the same owner in different data directories."""
    return f"{of}{_MARK}{token}" if token else of


def owner_and_token(of: str) -> tuple[str, str]:
    """The arguments of `signed`."""
    owner, _, token = of.partition(_MARK)
    return owner, token


def seal(value: dict[str, Any], of: str | None = None, number: int = 0) -> bytes:
    """The bytes of a file."""
    head = {} if of is None else {_OF: of, _NUMBER: number}
    assert not {_OF, _NUMBER, _CHECKSUM} & value.keys(), "the value has a name of the head"
    plain = json.dumps({**head, **value}, indent=2)
    return json.dumps({**head, **value, _CHECKSUM: zlib.crc32(plain.encode())}, indent=2).encode()


def unseal(text: bytes) -> Sealed:
    """The content of a file; ValueError says why it is damaged."""
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("it holds something else")  # noqa: TRY004 - told like other damage
    if _CHECKSUM not in data:
        return Sealed(data, checked=False)
    del data[_CHECKSUM]
    of, number = data.pop(_OF, None), data.pop(_NUMBER, 0)
    if text != seal(data, of, number):
        raise ValueError("its checksum does not match")
    return Sealed(data, of, number)


def replace_file(path: Path, text: bytes, *, durable: bool = True, named: bool = True) -> None:
    """Replace a file atomically; a crash leaves the old or the new one.

    `durable`: its content is synced to disk; `named`: its folder is synced too, so that the name is durable.
    """
    aside = path.with_name(path.name + ASIDE)
    try:
        aside.unlink(missing_ok=True)
        # Statements may hold passwords, and a file may be copied out of its private folder with its mode.
        with open_file(aside, "xb") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    if durable and named:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make created, renamed and removed names durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def damaged(path: Path, why: str, detail: str | None = None) -> CorruptDataError:
    """The error for a damaged or foreign file of a job, with what to do about it."""
    return CorruptDataError(
        f'file "{path}" {why}',
        detail=detail,
        hint="put the file back from a copy of the data directory, or begin anew with CREATE OR REPLACE",
    )


def checksum(path: Path) -> int:
    """The checksum of a whole file."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            found = zlib.crc32(piece, found)
    return found
