"""Files as a place to write to, each row exactly once."""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from velostream.connectors.base import Sink, SinkContext
from velostream.connectors.file.layout import format_of
from velostream.connectors.journal import sync_folder
from velostream.errors import SinkError, SourceConfigError, UnsupportedError
from velostream.formats.csv_text import CsvDialect
from velostream.formats.csv_writing import csv_header, csv_lines
from velostream.formats.json_text import json_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from velostream.connectors.file.options import FileOptions

_WRITABLE = ("csv", "tsv", "json", "jsonl", "parquet")


def open_sink(options: FileOptions, context: SinkContext) -> Sink:
    """A sink for one file that grows, or for a folder of parts (a path that ends in `/`, and Parquet)."""
    if not options.path:
        raise SourceConfigError("a file sink needs a path", hint="write file:///folder/name.csv")
    form = options.format or format_of(options.path) or ("jsonl" if options.path.endswith("/") else None)
    if form is None:
        hint = 'say it: WITH ("format" = "csv")'
        raise SourceConfigError(f'the format of "{options.path}" is not told by its name', hint=hint)
    if form not in _WRITABLE:
        raise UnsupportedError(f"writing {form} files is not in this version yet")
    encoder = Encoder(form, options, context)
    path = Path(options.path).expanduser().absolute()
    parts = options.path.endswith("/") or form == "parquet"
    _check_place(path, path if parts else path.parent)
    return PartsSink(path, encoder, context) if parts else GrowingSink(path, encoder, context)


def _check_place(path: Path, folder: Path) -> None:
    """Say that nothing can be written there when the statement is made, not when the first row comes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise SinkError(f'file "{path}" cannot be written: "{folder}" is not a folder') from None
    except OSError as exc:
        raise _cannot_write(path, exc) from exc
    if path != folder and path.is_dir():
        hint = "name a file in it, or end the path with / for one file per batch"
        raise SinkError(f'"{path}" is a folder', hint=hint)
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise SinkError(f'file "{path}" cannot be written: permission denied')


def _cannot_write(path: Path, exc: OSError) -> SinkError:
    return SinkError(f'file "{path}" cannot be written: {(exc.strerror or str(exc)).lower()}')


class Encoder:
    """Rows to the bytes of a format."""

    def __init__(self, form: str, options: FileOptions, context: SinkContext) -> None:
        self.form = "jsonl" if form == "json" else form
        self._text = context.decimal_format == "string"
        delimiter = options.delimiter or ("\t" if form == "tsv" else ",")
        self._dialect = CsvDialect(delimiter, options.quote, options.null, options.header)

    def header(self, schema: pa.Schema) -> bytes:
        """What stands at the beginning of a file."""
        if self.form in ("csv", "tsv") and self._dialect.header:
            return csv_header(schema.names, self._dialect).encode()
        return b""

    def write(self, rows: pa.Table, out: IO[bytes]) -> None:
        """Append rows; Parquet is a whole file."""
        if self.form == "parquet":
            import pyarrow.parquet as pq

            pq.write_table(rows, out)
        elif self.form == "jsonl":
            out.writelines(f"{line}\n".encode() for line in json_lines(rows, self._text))
        else:
            out.writelines(line.encode() for line in csv_lines(rows, self._dialect))


class GrowingSink(Sink):
    """One file at whose end rows are written; what a crash left beyond the recorded length is cut off.

    What the file held before the first write stays. A file that became shorter than recorded, or is another
    one, is somebody else's work: writing stops with an error rather than guess.
    """

    def __init__(self, path: Path, encoder: Encoder, context: SinkContext) -> None:
        self._path = path
        self._encoder = encoder
        self._schema = context.schema
        begin = _remember(
            context.state / "begin.json", lambda: {"length": _size(path) or 0, "columns": self._schema.names}
        )
        if encoder.header(context.schema) and begin["columns"] != context.schema.names:
            raise UnsupportedError(
                f'file "{path}" begins with columns {", ".join(begin["columns"])}, and rows have '
                f"{', '.join(context.schema.names)} now",
                hint="name the columns in the SELECT, or write JSON lines",
            )
        self._begin: int = begin["length"]
        self._length = self._begin
        self._inode: int | None = None

    def write(self, batch: int, rows: pa.Table) -> Mapping[str, Any]:
        """See `Sink`."""
        try:
            self._verify()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as out:
                if self._length == 0:
                    out.write(self._encoder.header(self._schema))
                self._encoder.write(rows, out)
                out.flush()
                os.fsync(out.fileno())
                found = os.fstat(out.fileno())
        except OSError as exc:
            self._cut()
            raise _cannot_write(self._path, exc) from exc
        if self._inode is None:
            sync_folder(self._path.parent)
        self._length, self._inode = found.st_size, found.st_ino
        return {"length": self._length, "inode": self._inode}

    def recover(self, recorded: Mapping[str, Any] | None) -> None:
        """See `Sink`."""
        self._length = int(recorded["length"]) if recorded else self._begin
        self._inode = int(recorded["inode"]) if recorded else None
        size = _size(self._path)
        if size is None and not recorded:
            return
        if size is not None and size > self._length and self._same_file():
            os.truncate(self._path, self._length)
        self._verify()

    def _verify(self) -> None:
        size = _size(self._path)
        if size is None:
            if self._length:
                raise SinkError(f'file "{self._path}" has vanished', hint=_RESTART)
            return
        if not self._same_file():
            raise SinkError(f'file "{self._path}" was replaced by another one', hint=_RESTART)
        if size != self._length:
            change = "shorter" if size < self._length else "longer"
            raise SinkError(
                f'file "{self._path}" became {change} behind our back: {size} bytes, not {self._length}',
                hint=_RESTART,
            )

    def _same_file(self) -> bool:
        return self._inode is None or self._path.stat().st_ino == self._inode

    def _cut(self) -> None:
        """After a failed write, leave what was there before it."""
        size = _size(self._path)
        if size is not None and size > self._length and self._same_file():
            os.truncate(self._path, self._length)


_RESTART = "put the file back, or write to another one with CREATE OR REPLACE"


class PartsSink(Sink):
    """A folder of files, one per batch, each appearing whole.

    Parts carry an id of this sink, so that several jobs may share a folder.
    """

    def __init__(self, folder: Path, encoder: Encoder, context: SinkContext) -> None:
        self._folder = folder
        self._encoder = encoder
        self._schema = context.schema
        types = {field.name: str(field.type) for field in context.schema}
        begin = _remember(
            context.state / "begin.json", lambda: {"id": uuid.uuid4().hex[:8], "columns": types}
        )
        self._id = begin["id"]
        for name, kind in begin["columns"].items():
            if encoder.form == "parquet" and types.get(name, kind) != kind:
                raise UnsupportedError(
                    f'column "{name}" is {kind} in the files of "{folder}", and {types[name]} now',
                    hint=f"cast it in the SELECT: CAST({name} AS DECIMAL(38, 10))",
                )

    def write(self, batch: int, rows: pa.Table) -> Mapping[str, Any]:
        """See `Sink`; a batch without rows makes no file."""
        if rows.num_rows:
            target = self._folder / f"part-{self._id}-{batch:010d}.{self._encoder.form}"
            partial = self._folder / f".{target.name}.partial"
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                with partial.open("wb") as out:
                    out.write(self._encoder.header(self._schema))
                    self._encoder.write(rows, out)
                    out.flush()
                    os.fsync(out.fileno())
                partial.replace(target)
                sync_folder(self._folder)
            except OSError as exc:
                with suppress(OSError):
                    partial.unlink(missing_ok=True)
                raise _cannot_write(target, exc) from exc
        return {"batch": batch}

    def recover(self, recorded: Mapping[str, Any] | None) -> None:
        """See `Sink`."""
        last = int(recorded["batch"]) if recorded else -1
        if not self._folder.is_dir():
            return
        for path in self._folder.glob(f".part-{self._id}-*.partial"):
            path.unlink(missing_ok=True)
        for path in self._folder.glob(f"part-{self._id}-*"):
            number = path.name.removeprefix(f"part-{self._id}-").partition(".")[0]
            if number.isdigit() and int(number) > last:
                path.unlink(missing_ok=True)


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


def _remember(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was said the first time, durably."""
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    value = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("w") as out:
        json.dump(value, out)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(path)
    sync_folder(path.parent)
    return value
