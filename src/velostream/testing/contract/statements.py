"""Opens sources and sinks as statements do, with the registry, the checks of properties and the traits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.config import Settings
from velostream.connectors.base import SinkContext
from velostream.engine.opening.connect import open_sink, open_source
from velostream.model.statements import SourceRef
from velostream.model.uri import Uri
from velostream.testing.contract.sinks import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from velostream.connectors.base import Sink, Source


def source_of(
    uri: str, folder: Path, properties: Mapping[str, str] | None = None, *, resumed: bool = False
) -> Source:
    """The source of `CREATE TABLE … AS SELECT … FROM uri WITH (properties)`.

    `folder` is the job's, `resumed` says whether the job was there before.
    """
    return open_source(
        SourceRef("__source_1", Uri(uri), dict(properties or {})),
        Settings(data_dir=folder / "data"),
        folder / "spool",
        known=None,
        once=False,
        table=True,
        resumed=resumed,
    )


def sink_of(
    uri: str,
    folder: Path,
    properties: Mapping[str, str] | None = None,
    *,
    key: Sequence[str] = (),
    resumed: bool = False,
) -> Sink:
    """The sink of `INSERT INTO uri SELECT id, name …`; `key` is that of the table that is read."""
    context = SinkContext(folder / "state", COLUMNS, tuple(key), job="contract", resumed=resumed)
    return open_sink(Uri(uri), dict(properties or {}), Settings(data_dir=folder / "data"), context)
