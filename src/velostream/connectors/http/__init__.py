"""Resources on the web."""

from __future__ import annotations

from velostream.connectors.base import Connector
from velostream.connectors.http.options import HttpOptions, parse_http


class HttpConnector(Connector):
    """http(s)://host/path."""

    name = "http"
    schemes = ("http", "https")
    Options = HttpOptions
    available = False
    parse = staticmethod(parse_http)
