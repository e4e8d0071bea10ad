"""Iceberg tables."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from velostream.connectors.base import Connector, Sink, SinkContext
from velostream.connectors.iceberg.options import IcebergOptions, parse_iceberg
from velostream.errors import ConfigError

if TYPE_CHECKING:
    from velostream.connectors.waiting import Waiting
    from velostream.model.options import Options as AnyOptions
    from velostream.model.uri import Uri


class IcebergConnector(Connector):
    """iceberg://catalogue/namespace.table, or iceberg:///warehouse/namespace.table."""

    name = "iceberg"
    schemes = ("iceberg",)
    Options = IcebergOptions
    driver = "pyiceberg"
    upserts = True
    parse = staticmethod(parse_iceberg)

    def await_sink(self, uri: Uri, options: AnyOptions, waiting: Waiting) -> None:
        """See `Connector`."""
        _need_library()
        from velostream.connectors.iceberg.sink import await_table

        assert isinstance(options, IcebergOptions)
        await_table(options)

    def sink(self, uri: Uri, options: AnyOptions, context: SinkContext) -> Sink:
        """See `Connector`."""
        _need_library()
        from velostream.connectors.iceberg.sink import IcebergSink

        assert isinstance(options, IcebergOptions)
        return IcebergSink(options, context)


def _need_library() -> None:
    if find_spec("pyiceberg") is None:
        raise ConfigError("iceberg:// needs the package pyiceberg", hint="pip install 'velostream[iceberg]'")
