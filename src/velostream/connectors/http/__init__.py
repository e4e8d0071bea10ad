"""Resources on the web, streams of events, and what is posted to us."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from velostream.connectors.base import Connector, Delivery, Sink, SinkContext, Source, SourceContext
from velostream.connectors.http.options import HttpOptions, parse_http
from velostream.model.traits import SourceTraits

if TYPE_CHECKING:
    from velostream.connectors.waiting import Waiting
    from velostream.model.options import Options as AnyOptions
    from velostream.model.uri import Uri

_LOOK_EVERY = timedelta(milliseconds=500)
"""The delay between two looks at what was received; a thread tells when there is something."""
_DUE_EVERY = timedelta(seconds=1)
"""The delay between two looks whether it is time for a request."""


class HttpConnector(Connector):
    """http(s)://host/path."""

    name = "http"
    schemes = ("http", "https")
    Options = HttpOptions
    follows = "changed answers, new rows, server-sent events, webhooks"
    delivery = (Delivery.AT_LEAST_ONCE,)
    parse = staticmethod(parse_http)
    upserts = True

    def traits(self, options: AnyOptions, *, table: bool, once: bool) -> SourceTraits:
        """See `Connector`: rows that a resource no longer lists are retracted; events are only added."""
        assert isinstance(options, HttpOptions)
        if options.appends:
            return SourceTraits(
                rereadable=False,
                frames_in_order=True,
                poll_interval=_LOOK_EVERY,
                wait_timeout=options.wait_timeout,
            )
        return SourceTraits(
            only_grows=not table,
            poll_interval=min(options.poll_interval, _DUE_EVERY),
            wait_timeout=options.wait_timeout,
        )

    def source(self, uri: Uri, options: AnyOptions, context: SourceContext) -> Source:
        """See `Connector`."""
        from velostream.connectors.http.read.source import open_http

        assert isinstance(options, HttpOptions)
        return open_http(options, context)

    def await_sink(self, uri: Uri, options: AnyOptions, waiting: Waiting) -> None:
        """See `Connector`: the server can be connected to; nothing is sent to find out more."""
        from velostream.connectors.http.write.sink import await_server

        assert isinstance(options, HttpOptions)
        await_server(options, waiting)

    def sink(self, uri: Uri, options: AnyOptions, context: SinkContext) -> Sink:
        """See `Connector`."""
        from velostream.connectors.http.write.sink import HttpSink

        assert isinstance(options, HttpOptions)
        return HttpSink(options, context)
