"""Delta Lake tables."""

from __future__ import annotations

from velostream.connectors.base import Connector
from velostream.connectors.delta.options import DeltaOptions, parse_delta


class DeltaConnector(Connector):
    """delta:///path."""

    name = "delta"
    schemes = ("delta",)
    Options = DeltaOptions
    available = False
    parse = staticmethod(parse_delta)
