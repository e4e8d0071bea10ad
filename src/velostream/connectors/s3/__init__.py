"""Objects in S3 and compatible stores."""

from __future__ import annotations

from velostream.connectors.base import Connector
from velostream.connectors.s3.options import S3Options, parse_s3


class S3Connector(Connector):
    """s3://bucket/prefix."""

    name = "s3"
    schemes = ("s3", "s3a")
    Options = S3Options
    available = False
    parse = staticmethod(parse_s3)
