"""Opens what an address names as a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.http.client.requests import Requests
from velostream.connectors.http.options import EVENTS

if TYPE_CHECKING:
    from velostream.connectors.base import Source, SourceContext
    from velostream.connectors.http.options import HttpOptions


def open_http(options: HttpOptions, context: SourceContext) -> Source:
    """A resource that lists its rows, or one that only adds rows: answers, events, deliveries."""
    if not options.appends:
        from velostream.connectors.http.read.resource import ResourceSource

        return ResourceSource(options, context)
    from velostream.connectors.http.read.event_stream import Events
    from velostream.connectors.http.read.new_rows import Answers
    from velostream.connectors.http.read.received import RecordsSource
    from velostream.connectors.http.read.webhook import Webhook

    if options.webhook:
        return RecordsSource(Webhook(options, context.schema), options, context)
    requests = Requests(options, context.reach)
    if options.format == EVENTS:
        return RecordsSource(Events(options, requests), options, context)
    return RecordsSource(Answers(options, requests), options, context)
