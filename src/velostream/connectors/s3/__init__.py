"""Objects in S3, Google Cloud Storage and Azure Blob Storage, and in stores that speak their protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.base import Connector, Sink, SinkContext, Source, SourceContext
from velostream.connectors.s3.options import (
    AzureOptions,
    GoogleOptions,
    ObjectOptions,
    S3Options,
    parse_bucket,
)
from velostream.model.traits import SourceTraits

if TYPE_CHECKING:
    from velostream.connectors.waiting import Waiting
    from velostream.model.options import Options as AnyOptions
    from velostream.model.uri import Uri


class ObjectConnector(Connector):
    """What object stores share."""

    parse = staticmethod(parse_bucket)
    follows = "new, replaced and deleted objects, by listing"

    def leads_to(self, options: AnyOptions) -> tuple[str, ...]:
        """See `Connector`: the usual host of the bucket."""
        assert isinstance(options, ObjectOptions)
        return () if options.endpoint is not None else (options.usual_host,)

    def traits(self, options: AnyOptions, *, table: bool, once: bool) -> SourceTraits:
        """See `Connector`: a table loses the rows of objects that are replaced or deleted."""
        assert isinstance(options, ObjectOptions)
        return SourceTraits(
            only_grows=not table, poll_interval=options.poll_interval, wait_timeout=options.wait_timeout
        )

    def source(self, uri: Uri, options: AnyOptions, context: SourceContext) -> Source:
        """See `Connector`."""
        from velostream.connectors.s3.source import open_objects

        assert isinstance(options, ObjectOptions)
        return open_objects(self.schemes[0], options, context)

    def await_sink(self, uri: Uri, options: AnyOptions, waiting: Waiting) -> None:
        """See `Connector`: the bucket must exist; a prefix comes with its first object."""
        from velostream.connectors.s3.sink import await_bucket

        assert isinstance(options, ObjectOptions)
        await_bucket(self.schemes[0], options, waiting)

    def sink(self, uri: Uri, options: AnyOptions, context: SinkContext) -> Sink:
        """See `Connector`."""
        from velostream.connectors.s3.sink import open_sink

        assert isinstance(options, ObjectOptions)
        return open_sink(self.schemes[0], options, context)


class S3Connector(ObjectConnector):
    """s3://bucket/prefix."""

    name = "s3"
    schemes = ("s3", "s3a")
    Options = S3Options
    follows = "new, replaced and deleted objects, by listing or event notifications"


class GoogleConnector(ObjectConnector):
    """gs://bucket/prefix."""

    name = "gs"
    schemes = ("gs", "gcs")
    Options = GoogleOptions


class AzureConnector(ObjectConnector):
    """az://container/prefix."""

    name = "az"
    schemes = ("az", "abfs", "abfss")
    Options = AzureOptions
