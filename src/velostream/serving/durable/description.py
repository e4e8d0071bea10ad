"""The small files beside a table's log: its description, its readers, its state at the last close.

Each is JSON with a checksum and the id of its table, and is replaced atomically.
"""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.disk.full_disk import storage_error, storing
from velostream.disk.sealed_json import Sealed, replace_file, seal, unseal
from velostream.errors import DataDirError
from velostream.model.tables import TableSpec
from velostream.serving.durable.damage import corrupt

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 3
"""Format of a table's folder.

Format 1 had no checksums in these files and created its first log file late; in format 2 files did not name
their table, and the description did not name the statement that made it.
"""

DESCRIPTION = "table.json"
READERS = "readers.json"
CLOSED = "closed.json"
"""The newest record when the table was last closed properly: the log may be longer, never shorter."""

_KEYS = frozenset({"format", "name", "key", "options", "datasource_type", "owner", "schema"})
_MADE_BY = frozenset({"statement", "job"})


@dataclass(frozen=True)
class Description:
    """The content of `table.json`."""

    spec: TableSpec
    form: int
    """Format of the folder."""
    id: str | None
    """The unique id of this table, also among tables of the same name; None in earlier formats."""
    number: int
    """How often the description was written; each log record names the number it was written under."""


def read(path: Path, of: str | None = None) -> dict[str, Any] | None:
    """The content of a file; None when it does not exist. CorruptDataError when it is damaged.

    `of`: the id of the table that it must belong to, unless it is of an earlier format.
    """
    found = _read(path)
    if found is not None and None not in (of, found.of) and found.of != of:
        raise corrupt(f'file "{path}" is of another table')
    return found.value if found is not None else None


def _read(path: Path) -> Sealed | None:
    try:
        return unseal(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise storage_error(exc, path, reading=True) from exc
    except ValueError as exc:
        raise corrupt(f'file "{path}" is damaged', str(exc)) from exc


def write(path: Path, data: dict[str, Any], *, of: str | None = None, durable: bool = True) -> None:
    """Replace the file atomically; a crash leaves the old or the new one."""
    with storing(path):
        replace_file(path, seal(data, of), durable=durable)


# --- what a table is --------------------------------------------------------------------------------


def write_spec(folder: Path, spec: TableSpec, before: Description | None = None) -> Description:
    """Make the description durable, for a new table or in place of `before`."""
    found = before.id if before is not None else None
    made = Description(
        spec, FORMAT, found or uuid.uuid4().hex[:16], before.number + 1 if before is not None else 1
    )
    value = {
        "format": FORMAT,
        "name": spec.name,
        "key": list(spec.key),
        "options": dict(spec.options),
        "datasource_type": spec.datasource_type,
        "owner": spec.owner,
        "statement": spec.statement,
        "job": spec.job,
        "schema": base64.b64encode(spec.schema.serialize().to_pybytes()).decode(),
    }
    with storing(folder / DESCRIPTION):
        replace_file(folder / DESCRIPTION, seal(value, made.id, made.number))
    return made


def read_spec(folder: Path) -> Description:
    """The description; CorruptDataError when it is missing or damaged."""
    path = folder / DESCRIPTION
    found = _read(path)
    if found is None:
        raise corrupt(f'file "{path}" is missing')
    data = found.value
    form = data.get("format")
    if not isinstance(form, int) or not 1 <= form <= FORMAT:
        raise DataDirError(
            f'table in "{folder}" has format {form}; this version reads {FORMAT}',
            hint="use the version of velostream that wrote it",
        )
    if set(data) != (_KEYS if form < FORMAT else _KEYS | _MADE_BY):
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
        statement=data.get("statement"),
        job=data.get("job"),
    )
    return Description(spec, form, found.of, found.number)


def read_readers(folder: Path, of: str | None = None) -> dict[str, int]:
    """The registered readers of the log, and the version that each has; raises CorruptDataError."""
    data = read(folder / READERS, of)
    if data is None:
        return {}
    readers = data["readers"] if set(data) == {"readers"} else data
    if not isinstance(readers, dict) or not all(isinstance(at, int) for at in readers.values()):
        raise corrupt(f'file "{folder / READERS}" is damaged')
    return dict(readers)


def read_closed(folder: Path, of: str | None = None) -> Closed:
    """The state at the last close; raises CorruptDataError."""
    data = read(folder / CLOSED, of)
    if data is None:
        return Closed()
    if not all(isinstance(value, int) for value in data.values()) or not {"seq"} <= set(data) <= _CLOSED:
        raise corrupt(f'file "{folder / CLOSED}" is damaged')
    return Closed(**data)


@dataclass(frozen=True)
class Closed:
    """State recorded at closing: afterwards the log, and the description, may be newer, never older."""

    seq: int = 0
    """The newest record."""
    description: int = 0
    """See `Description.number`."""


_CLOSED = frozenset({"seq", "description"})
