"""Delta Lake tables."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from velostream.connectors.base import Connector, Sink, SinkContext
from velostream.connectors.delta.options import DeltaOptions, parse_delta
from velostream.errors import ConfigError

if TYPE_CHECKING:
    from velostream.connectors.waiting import Waiting
    from velostream.model.options import Options as AnyOptions
    from velostream.model.uri import Uri


class DeltaConnector(Connector):
    """delta:///path."""

    name = "delta"
    schemes = ("delta",)
    Options = DeltaOptions
    driver = "deltalake"
    upserts = True
    parse = staticmethod(parse_delta)

    def await_sink(self, uri: Uri, options: AnyOptions, waiting: Waiting) -> None:
        """See `Connector`."""
        _need_library()
        from velostream.connectors.delta.place import check_place, folder_of

        assert isinstance(options, DeltaOptions)
        check_place(folder_of(options), make=options.create_table)

    def sink(self, uri: Uri, options: AnyOptions, context: SinkContext) -> Sink:
        """See `Connector`."""
        _need_library()
        from velostream.connectors.delta.sink import DeltaSink

        assert isinstance(options, DeltaOptions)
        return DeltaSink(options, context)


def _need_library() -> None:
    if find_spec("deltalake") is None:
        raise ConfigError("delta:// needs the package deltalake", hint="pip install 'velostream[delta]'")
