"""Opens objects of a bucket as a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.files.source import FilesSource
from velostream.connectors.s3.events import Events
from velostream.connectors.s3.options import S3Options
from velostream.connectors.s3.prefix import Prefix
from velostream.connectors.s3.queue import queue_of

if TYPE_CHECKING:
    from velostream.connectors.base import Source, SourceContext
    from velostream.connectors.s3.options import ObjectOptions


def open_objects(scheme: str, options: ObjectOptions, context: SourceContext) -> Source:
    """The objects that these properties name, followed by listing them again and again."""
    events = None
    if isinstance(options, S3Options) and options.events is not None and not context.once:
        events = Events(queue_of(options), options.bucket or "")
    return FilesSource(Prefix(scheme, options, events), options, context)
