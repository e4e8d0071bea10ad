"""Velostream's own tables by URI; by name they need no connector."""

from __future__ import annotations

from velostream.connectors.base import Connector
from velostream.connectors.memory.options import MemoryOptions, parse_memory


class MemoryConnector(Connector):
    """memory://table: the same as naming the table."""

    name = "memory"
    schemes = ("memory",)
    Options = MemoryOptions
    available = False
    parse = staticmethod(parse_memory)
