"""Generated rows, for demonstrations and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.base import Connector, Source, SourceContext
from velostream.connectors.datagen.options import DatagenOptions, parse_datagen
from velostream.errors import InternalError

if TYPE_CHECKING:
    from velostream.model.options import Options as AnyOptions
    from velostream.model.uri import Uri


class DatagenConnector(Connector):
    """datagen://trades?rows_per_second=100."""

    name = "datagen"
    schemes = ("datagen",)
    functions = ("datagen",)
    Options = DatagenOptions
    follows = "generated rows"
    parse = staticmethod(parse_datagen)

    def source(self, uri: Uri, options: AnyOptions, context: SourceContext) -> Source:
        """Open a generator; its time starts when it is first opened with this spool."""
        from velostream.connectors.datagen.source import DatagenSource

        if not isinstance(options, DatagenOptions):
            raise InternalError(f"datagen options expected, not {type(options).__name__}")
        return DatagenSource(options, context)
