"""The terminal, as a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.base import Connector, Delivery, Sink, SinkContext
from velostream.connectors.console.options import ConsoleOptions, parse_console
from velostream.errors import InternalError

if TYPE_CHECKING:
    from velostream.model.options import Options as AnyOptions
    from velostream.model.uri import Uri


class ConsoleConnector(Connector):
    """console://."""

    name = "console"
    schemes = ("console",)
    Options = ConsoleOptions
    delivery = (Delivery.AT_LEAST_ONCE,)
    parse = staticmethod(parse_console)

    def sink(self, uri: Uri, options: AnyOptions, context: SinkContext) -> Sink:
        """Print to standard output."""
        from velostream.connectors.console.sink import ConsoleSink

        if not isinstance(options, ConsoleOptions):
            raise InternalError(f"console options expected, not {type(options).__name__}")
        return ConsoleSink(options)
