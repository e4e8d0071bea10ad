"""The small files beside a table's log: its description, its readers, the last record at closing.

Each is JSON that carries its own checksum and is replaced as a whole.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import DataDirError
from velostream.model.tables import TableSpec
from velostream.serving.frames import corrupt
from velostream.serving.log import sync_folder

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 2
"""Of a table's folder. Format 1 had no checksums in these files and made its first log file late."""

DESCRIPTION = "table.json"
READERS = "readers.json"
CLOSED = "closed.json"
"""The newest record when the table was last closed in good order: the log may be longer, never shorter."""
ASIDE = ".new"

_CHECKSUM = "checksum"
_KEYS = frozenset({"format", "name", "key", "options", "datasource_type", "owner", "schema"})


def read(path: Path) -> dict[str, Any] | None:
    """The content, None when there is no such file; raises CorruptDataError when a byte is not as written."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise corrupt(f'file "{path}" cannot be read', exc.strerror or str(exc)) from exc
    try:
        data = json.loads(text)
    except ValueError as exc:
        raise corrupt(f'file "{path}" is damaged', str(exc)) from exc
    if not isinstance(data, dict):
        raise corrupt(f'file "{path}" is damaged', "it holds something else")
    if _CHECKSUM not in data:
        return data
    del data[_CHECKSUM]
    if text != _sealed(data):
        raise corrupt(f'file "{path}" is damaged', "its checksum does not match")
    return data


def write(path: Path, data: dict[str, Any], *, durable: bool = True) -> None:
    """Replace the file; a crash leaves the old or the new one."""
    aside = path.with_suffix(ASIDE)
    try:
        aside.touch(mode=0o600)
        with aside.open("wb") as file:
            file.write(_sealed(data))
            if durable:
                file.flush()
                os.fsync(file.fileno())
        aside.rename(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def _sealed(data: dict[str, Any]) -> bytes:
    plain = json.dumps(data, indent=2)
    return json.dumps({**data, _CHECKSUM: zlib.crc32(plain.encode())}, indent=2).encode()


# --- what a table is --------------------------------------------------------------------------------


def write_spec(folder: Path, spec: TableSpec) -> None:
    """Make the description durable."""
    write(
        folder / DESCRIPTION,
        {
            "format": FORMAT,
            "name": spec.name,
            "key": list(spec.key),
            "options": dict(spec.options),
            "datasource_type": spec.datasource_type,
            "owner": spec.owner,
            "schema": base64.b64encode(spec.schema.serialize().to_pybytes()).decode(),
        },
    )


def read_spec(folder: Path) -> tuple[TableSpec, int]:
    """The description, and the format of the folder."""
    path = folder / DESCRIPTION
    data = read(path)
    if data is None:
        raise corrupt(f'file "{path}" is missing')
    form = data.get("format")
    if not isinstance(form, int) or not 1 <= form <= FORMAT:
        raise DataDirError(
            f'table in "{folder}" has format {form}; this version reads {FORMAT}',
            hint="use the version of velostream that wrote it",
        )
    if set(data) != _KEYS:
        raise corrupt(f'file "{path}" is damaged', "its entries are not those of a table")
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(data["schema"], validate=True)))
    except (ValueError, OSError) as exc:
        raise corrupt(f'file "{path}" is damaged', str(exc)) from exc
    spec = TableSpec(
        name=data["name"],
        schema=schema,
        key=tuple(data["key"]),
        options=data["options"],
        datasource_type=data["datasource_type"],
        owner=data["owner"],
    )
    return spec, form


def read_readers(folder: Path) -> dict[str, int]:
    """Who still reads the log, and from which version on; raises CorruptDataError."""
    data = read(folder / READERS)
    if data is None:
        return {}
    readers = data["readers"] if set(data) == {"readers"} else data
    if not isinstance(readers, dict) or not all(isinstance(at, int) for at in readers.values()):
        raise corrupt(f'file "{folder / READERS}" is damaged')
    return dict(readers)


def read_closed(folder: Path) -> int:
    """Number of the record that is known to have been the newest; raises CorruptDataError."""
    data = read(folder / CLOSED)
    if data is None:
        return 0
    seq = data.get("seq")
    if not isinstance(seq, int) or len(data) != 1:
        raise corrupt(f'file "{folder / CLOSED}" is damaged')
    return seq
