"""A folder of files as a sink: one file for each batch, which appears whole."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from typing import IO, TYPE_CHECKING, Any

from velostream.connectors.base import Sink, SinkContext
from velostream.disk.full_disk import storing
from velostream.disk.private import make_folder
from velostream.disk.record import Record
from velostream.errors import SinkChangedError, SourceConfigError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa

    from velostream.connectors.files.encoder import Encoder

_WRITABLE = ("csv", "tsv", "json", "jsonl", "parquet")


class Shelf(ABC):
    """A folder, or a prefix of a bucket, in which files appear whole or not at all."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The folder, as messages name it."""

    @abstractmethod
    def put(self, name: str, write: Callable[[IO[bytes]], None]) -> None:
        """Write a file durably, replacing one of the same name; what fails leaves nothing under the name."""

    @abstractmethod
    def names(self, prefix: str) -> Iterable[str]:
        """The files whose names begin like this."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""


class PartsSink(Sink):
    """Writes a folder of files, one per batch, each of which appears atomically.

    File names carry an id of this sink, so that several jobs may share a folder.
    """

    def __init__(self, shelf: Shelf, encoder: Encoder, context: SinkContext) -> None:
        self._shelf = shelf
        self._encoder = encoder
        self._schema = context.schema
        types = {field.name: str(field.type) for field in context.schema}
        begin = remember(context, lambda: {"id": uuid.uuid4().hex[:8], "columns": types})
        self._prefix = f"part-{begin['id']}-"
        for name, kind in begin["columns"].items():
            if encoder.form == "parquet" and types.get(name, kind) != kind:
                raise UnsupportedError(
                    f'column "{name}" is {kind} in the files of "{shelf.name}", and {types[name]} now',
                    hint=f"cast it in the SELECT: CAST({name} AS DECIMAL(38, 10))",
                )

    def write(self, batch: int, rows: pa.Table) -> Mapping[str, Any]:
        """See `Sink`; a batch without rows writes no file."""

        def encode(out: IO[bytes]) -> None:
            out.write(self._encoder.header(self._schema))
            self._encoder.write(rows, out)

        if rows.num_rows:
            self._shelf.put(f"{self._prefix}{batch:010d}.{self._encoder.form}", encode)
        return {"batch": batch}

    def recover(self, recorded: Mapping[str, Any] | None) -> None:
        """See `Sink`."""
        last = int(recorded["batch"]) if recorded else -1
        found = ((name.removeprefix(self._prefix).partition(".")[0], name) for name in self._names())
        unrecorded = {int(number): name for number, name in found if number.isdigit() and int(number) > last}
        steps = max(unrecorded, default=last) + 1
        if steps > last + 2:
            raise SinkChangedError(
                f'"{self._shelf.name}" holds {steps} steps of this job, and {last + 1} are known here',
                detail="what the job recorded is older than what it wrote",
                hint="put the data directory back as it was, or begin anew with CREATE OR REPLACE",
            )
        for name in unrecorded.values():
            self._shelf.remove(name)

    def _names(self) -> Iterable[str]:
        return self._shelf.names(self._prefix)


def written_format(form: str | None, path: str) -> str:
    """The format in which a path is written; raises an error where there is none, or it is only read."""
    if form is None:
        hint = 'say it: WITH ("format" = "csv")'
        raise SourceConfigError(f'the format of "{path}" cannot be derived from its name', hint=hint)
    if form not in _WRITABLE:
        raise UnsupportedError(f"writing {form} files is not in this version yet")
    return form


def remember(context: SinkContext, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The value of the first call, made durable."""
    record = Record(context.state / "begin.json", f"{context.job} begin", required=context.resumed)
    found = record.load()
    if found is None:
        found = make()
        with storing(context.state):
            make_folder(context.state)
        record.save(found)
    return found
