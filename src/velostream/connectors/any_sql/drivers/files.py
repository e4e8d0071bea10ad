"""Databases that are a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from velostream.errors import SourceConfigError, SourceMissingError

if TYPE_CHECKING:
    from velostream.connectors.any_sql.drivers.base import Address


def file_of(address: Address, driver: str) -> Path:
    """The file of an address, which must exist and may be reached: `/path`, `//host/path` is none."""
    text = address.text if "/" in address.text or "." in address.text else ""
    written = text or address.options.database or address.text
    if written.startswith("///"):
        written = written[2:]
    if not written:
        raise SourceConfigError(f"{driver} needs a file", hint=f"sql://{driver}:/path/to/file?table=name")
    address.reach.check_file(written)
    path = Path(written).expanduser().absolute()
    if not path.is_file():
        raise SourceMissingError(
            f'file "{path}" does not exist', hint="check the path; it is not made, since it is only read"
        )
    return path
