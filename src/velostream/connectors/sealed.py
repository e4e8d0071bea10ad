"""Small durable files: JSON under a checksum that says whose it is, and is replaced as a whole."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from velostream.errors import CorruptDataError
from velostream.model.private import open_file

if TYPE_CHECKING:
    from pathlib import Path

ASIDE = ".new"
"""Ends the name of a file that is being written, before it takes the place of the one before."""

_PIECE = 4 << 20
_MARK = " #"
_OF, _NUMBER, _CHECKSUM = "of", "times written", "checksum"
"""What stands beside the value, under names that no value has."""


@dataclass(frozen=True)
class Sealed:
    """What a file says."""

    value: dict[str, Any]
    of: str | None = None
    """Whose it is; None in files that do not tell."""
    number: int = 0
    """How often it was written: an older version of the file has a smaller one."""
    checked: bool = True
    """Whether it has a checksum; files of earlier versions had none."""


def signed(of: str, token: str) -> str:
    """Whose a file is, told from a file of the same owner in another data directory."""
    return f"{of}{_MARK}{token}" if token else of


def owner_and_token(of: str) -> tuple[str, str]:
    """What `signed` was given."""
    owner, _, token = of.partition(_MARK)
    return owner, token


def seal(value: dict[str, Any], of: str | None = None, number: int = 0) -> bytes:
    """The bytes of a file."""
    head = {} if of is None else {_OF: of, _NUMBER: number}
    assert not {_OF, _NUMBER, _CHECKSUM} & value.keys(), "the value has a name of the head"
    plain = json.dumps({**head, **value}, indent=2)
    return json.dumps({**head, **value, _CHECKSUM: zlib.crc32(plain.encode())}, indent=2).encode()


def unseal(text: bytes) -> Sealed:
    """What a file says; ValueError tells why it is not as it was written."""
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
    """Put a file into the place of the one before; a crash leaves the old or the new one.

    `durable`: it is on the disk afterwards; and `named`: under its name, for which the folder is synced.
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
    """The error for a file of a job that cannot be what was written, with what to do about it."""
    return CorruptDataError(
        f'file "{path}" {why}',
        detail=detail,
        hint="put the file back from a copy of the data directory, or begin anew with CREATE OR REPLACE",
    )


def checksum(path: Path) -> int:
    """Of a whole file."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            found = zlib.crc32(piece, found)
    return found
