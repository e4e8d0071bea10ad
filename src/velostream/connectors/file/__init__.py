"""Files: CSV, TSV, JSON, JSON lines, Parquet, Avro, ORC; one, a pattern, or a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.base import Connector, Sink, SinkContext, Source, SourceContext
from velostream.connectors.file.options import FileOptions, parse_file
from velostream.errors import InternalError
from velostream.model.traits import SourceTraits

if TYPE_CHECKING:
    from velostream.model.options import Options as AnyOptions
    from velostream.model.uri import Uri


class FileConnector(Connector):
    """file:///path."""

    name = "file"
    schemes = ("file",)
    functions = ("file",)
    Options = FileOptions
    follows = "appended rows; new, edited, replaced and deleted files"
    parse = staticmethod(parse_file)

    def traits(self, options: AnyOptions, *, table: bool, once: bool) -> SourceTraits:
        """See `Connector`: rows of edited and deleted files are retracted where a table is built on them."""
        typed = _typed(options)
        return SourceTraits(
            only_grows=not table, poll_interval=typed.file_poll_interval, wait_timeout=typed.file_wait_timeout
        )

    def source(self, uri: Uri, options: AnyOptions, context: SourceContext) -> Source:
        """Open files for reading; nothing is read yet."""
        from velostream.connectors.file.source import FileSource

        return FileSource(_typed(options), context)

    def sole_place(self, uri: Uri, options: AnyOptions) -> str | None:
        """See `Connector`: one file that grows; files in a folder of parts carry the id of their writer."""
        from velostream.connectors.file.sink import sole_place

        return sole_place(_typed(options))

    def sink(self, uri: Uri, options: AnyOptions, context: SinkContext) -> Sink:
        """Open a file or folder for writing."""
        from velostream.connectors.file.sink import open_sink

        return open_sink(_typed(options), context)


def _typed(options: AnyOptions) -> FileOptions:
    if not isinstance(options, FileOptions):
        raise InternalError(f"file options expected, not {type(options).__name__}")
    return options
