"""Object stores as a sink: an object for each batch, each row exactly once."""

from __future__ import annotations

from contextlib import contextmanager
from io import BytesIO
from typing import IO, TYPE_CHECKING

from pyarrow import fs

from velostream.connectors.files.encoder import Encoder
from velostream.connectors.files.parts import PartsSink, Shelf, written_format
from velostream.connectors.files.place import is_pattern
from velostream.connectors.files.watch.layout import format_of
from velostream.connectors.s3.store import open_store, translated
from velostream.connectors.sinks import as_sink_errors
from velostream.errors import SinkConfigError, SinkMissingError, SinkNetworkError, SourceMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from velostream.connectors.base import Sink, SinkContext
    from velostream.connectors.s3.options import ObjectOptions
    from velostream.connectors.waiting import Waiting


def open_sink(scheme: str, options: ObjectOptions, context: SinkContext) -> Sink:
    """A sink that writes an object for each batch under a prefix; JSON lines, where no format is told."""
    path = (options.path or "").strip("/")
    if is_pattern(path):
        raise SinkConfigError(f"{scheme}://{options.bucket}/{path} is a pattern", hint="write a prefix/")
    if format_of(path) is not None:
        raise SinkConfigError(
            f"{scheme}://{options.bucket}/{path} names one object, and objects cannot be appended to",
            hint="write a prefix, which gets an object for each batch, and say the format: "
            f'WITH ("format" = "{format_of(path)}")',
        )
    form = written_format(options.format or "jsonl", path)
    shelf = BucketShelf(scheme, options, path)
    return PartsSink(shelf, Encoder(form, options, context.decimal_format), context)


def await_bucket(scheme: str, options: ObjectOptions, waiting: Waiting) -> None:
    """Return once the bucket exists and may be listed, waiting as the options say."""

    def reached() -> None:
        with as_sink_errors():
            store = open_store(options)
            with translated(f"{scheme}://{options.bucket}/ cannot be reached"):
                if store.get_file_info(options.bucket).type != fs.FileType.Directory:
                    raise SourceMissingError(f'bucket "{options.bucket}" does not exist')

    absent = (SinkMissingError, SinkNetworkError)
    waiting.until(reached, absent, options.wait_timeout, lambda _: options.retry_interval)


class BucketShelf(Shelf):
    """See `Shelf`: an object exists when all of it has arrived."""

    def __init__(self, scheme: str, options: ObjectOptions, prefix: str) -> None:
        self._bucket = options.bucket or ""
        self._folder = f"{self._bucket}/{prefix}".rstrip("/")
        self.__name = f"{scheme}://{self._folder}/"
        with as_sink_errors():
            self._store = open_store(options)

    @property
    def name(self) -> str:
        """See `Shelf`."""
        return self.__name

    def put(self, name: str, write: Callable[[IO[bytes]], None]) -> None:
        """See `Shelf`."""
        content = BytesIO()
        write(content)
        with (
            self._writing(f"{self.__name}{name} cannot be written"),
            self._store.open_output_stream(f"{self._folder}/{name}", compression=None) as out,
        ):
            out.write(content.getbuffer())

    def names(self, prefix: str) -> Iterator[str]:
        """See `Shelf`."""
        with self._writing(f"{self.__name} cannot be listed"):
            found = self._store.get_file_info(fs.FileSelector(self._folder, allow_not_found=True))
        yield from (info.base_name for info in found if info.base_name.startswith(prefix))

    def remove(self, name: str) -> None:
        """See `Shelf`."""
        with self._writing(f"{self.__name}{name} cannot be deleted"):
            self._store.delete_file(f"{self._folder}/{name}")

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        with as_sink_errors(), translated(what):
            yield
