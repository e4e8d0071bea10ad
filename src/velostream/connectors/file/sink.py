"""Files as a sink, each row exactly once."""

from __future__ import annotations

import os
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from zlib import crc32

from velostream.connectors.base import Sink, SinkContext
from velostream.connectors.files.encoder import Encoder
from velostream.connectors.files.parts import PartsSink, Shelf, remember, written_format
from velostream.connectors.files.watch.layout import format_of
from velostream.disk.full_disk import reason, remedy
from velostream.disk.private import open_file
from velostream.disk.sealed_json import sync_folder
from velostream.errors import SinkChangedError, SinkError, SourceConfigError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from velostream.connectors.file.options import FileOptions

_PARTIAL = ".partial"


def open_sink(options: FileOptions, context: SinkContext) -> Sink:
    """A sink for one file that grows, or for a folder of parts (a path ending in `/`, and Parquet)."""
    if not options.path:
        raise SourceConfigError("a file sink needs a path", hint="write file:///folder/name.csv")
    form = options.format or format_of(options.path) or ("jsonl" if options.path.endswith("/") else None)
    encoder = Encoder(written_format(form, options.path), options, context.decimal_format)
    path = Path(options.path).expanduser().absolute()
    parts = _in_parts(options.path, form)
    _check_place(path, path if parts else path.parent)
    return PartsSink(FolderShelf(path), encoder, context) if parts else GrowingSink(path, encoder, context)


def _in_parts(path: str, form: str | None) -> bool:
    return path.endswith("/") or form == "parquet"


def sole_place(options: FileOptions) -> str | None:
    """The one file that a statement would append to, in canonical spelling; None for parts."""
    if not options.path or _in_parts(options.path, options.format or format_of(options.path)):
        return None
    path = Path(options.path).expanduser().absolute().resolve()
    if not path.exists():
        return str(path)
    found = path.stat()
    return f"{found.st_dev}:{found.st_ino}"


def _check_place(path: Path, folder: Path) -> None:
    """Raise SinkError if nothing can be written there; called when the statement is created."""
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
    return SinkError(f'file "{path}" cannot be written: {reason(exc)}', hint=remedy(exc) or None)


class GrowingSink(Sink):
    """Appends rows to one file, exactly once.

    The content before the first write stays. Before each write the range that it will fill is recorded as an
    intent: after a crash, the content of that range is cut off, and nothing else ever is. If the file was
    changed in any other way, someone else has written to it: writing stops with an error rather than guess.
    """

    def __init__(self, path: Path, encoder: Encoder, context: SinkContext) -> None:
        self._path = path
        self._encoder = encoder
        self._schema = context.schema
        self._intent = Intent(context.state / "intent")
        header = encoder.header(context.schema)
        begin = remember(
            context, lambda: {"length": _appendable(path, header), "columns": self._schema.names}
        )
        if header and begin["columns"] != context.schema.names:
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
        text = BytesIO()
        if self._length == 0:
            text.write(self._encoder.header(self._schema))
        self._encoder.write(rows, text)
        try:
            self._cut()
            self._verify()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as out:
                self._intent.record(self._length, self._length + text.tell(), os.fstat(out.fileno()).st_ino)
                out.write(text.getbuffer())
                out.flush()
                os.fsync(out.fileno())
                found = os.fstat(out.fileno())
        except OSError as exc:
            # What cannot be cut off now is cut off before the next write.
            with suppress(OSError):
                self._cut()
            raise _cannot_write(self._path, exc) from exc
        if found.st_size != self._length + text.tell():
            raise self._changed(found.st_size, self._length + text.tell())
        if self._inode is None:
            sync_folder(self._path.parent)
        self._length, self._inode = found.st_size, found.st_ino
        return {"length": self._length, "inode": self._inode}

    def recover(self, recorded: Mapping[str, Any] | None) -> None:
        """See `Sink`."""
        self._length = int(recorded["length"]) if recorded else self._begin
        self._inode = int(recorded["inode"]) if recorded else None
        if _size(self._path) is None and not recorded:
            return
        self._cut()
        self._verify()

    def _verify(self) -> None:
        size = _size(self._path)
        if size is None:
            if self._length:
                raise SinkError(f'file "{self._path}" has vanished', hint=_RESTART)
            return
        if self._inode is not None and self._path.stat().st_ino != self._inode:
            raise SinkChangedError(f'file "{self._path}" was replaced by another one', hint=_RESTART)
        if size != self._length:
            raise self._changed(size, self._length)

    def _changed(self, size: int, expected: int) -> SinkChangedError:
        change = "shorter" if size < expected else "longer"
        return SinkChangedError(
            f'file "{self._path}" became {change} behind our back: {size} bytes, not {expected}',
            hint=_RESTART,
        )

    def _cut(self) -> None:
        """Truncate a write that failed or was not recorded."""
        size = _size(self._path)
        if size is not None and size > self._length:
            begin, end, inode = self._intent.load()
            if begin == self._length and size <= end and self._path.stat().st_ino == inode:
                os.truncate(self._path, self._length)


_RESTART = "put the file back, or write to another one with CREATE OR REPLACE"


class Intent:
    """The range of a file that the current write will fill, durable before its first byte is written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def record(self, begin: int, end: int, inode: int) -> None:
        """Record the range that is about to be written, replacing the previous one."""
        body = f"{begin} {end} {inode}".encode()
        # One short line, written in place: half of it fails the checksum, and then nothing was written yet.
        with open_file(self._path, "wb") as out:
            out.write(b"%08x %s" % (crc32(body), body))
            out.flush()
            os.fsync(out.fileno())

    def load(self) -> tuple[int, int, int]:
        """Begin, end and inode; an empty range when nothing is recorded."""
        text = self._path.read_bytes() if self._path.exists() else b""
        checksum, _, body = text.partition(b" ")
        if not body or checksum != b"%08x" % crc32(body):
            return 0, 0, -1
        begin, end, inode = (int(number) for number in body.split())
        return begin, end, inode


def _appendable(path: Path, header: bytes) -> int:
    """The length of the existing file; raises an error when rows cannot be appended to it."""
    size = _size(path) or 0
    if not size:
        return 0
    with path.open("rb") as file:
        first = file.read(len(header))
        file.seek(size - 1)
        last = file.read(1)
    if first != header:
        raise SinkError(
            f'file "{path}" does not begin with the line {header.decode().rstrip()}',
            hint="name the columns in the SELECT as the file has them, or write to another file",
        )
    if last != b"\n":
        raise SinkError(
            f'the last line of file "{path}" has no end, and rows would continue it',
            hint="add the line end, or write to another file",
        )
    return size


class FolderShelf(Shelf):
    """See `Shelf`: a file gets its name when it is whole and synced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def name(self) -> str:
        """See `Shelf`."""
        return str(self._folder)

    def put(self, name: str, write: Callable[[IO[bytes]], None]) -> None:
        """See `Shelf`."""
        target, partial = self._folder / name, self._folder / f".{name}{_PARTIAL}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as out:
                write(out)
                out.flush()
                os.fsync(out.fileno())
            partial.replace(target)
            sync_folder(self._folder)
        except OSError as exc:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise _cannot_write(target, exc) from exc

    def names(self, prefix: str) -> Iterator[str]:
        """See `Shelf`; what a crash left unfinished is deleted on the way."""
        if not self._folder.is_dir():
            return
        for path in self._folder.glob(f".{prefix}*{_PARTIAL}"):
            path.unlink(missing_ok=True)
        yield from (path.name for path in self._folder.glob(f"{prefix}*"))

    def remove(self, name: str) -> None:
        """See `Shelf`."""
        (self._folder / name).unlink(missing_ok=True)


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None
