"""Connectors: the contract of sources and sinks, the registry, and one folder per kind.

What a connector of one's own is made of can be imported from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = [
    "BadRecords",
    "Connector",
    "Counted",
    "Delivery",
    "NumberedSource",
    "Options",
    "Partitioned",
    "Sink",
    "SinkContext",
    "Source",
    "SourceContext",
    "SourceOptions",
    "SourceTraits",
    "TaskReader",
    "Uri",
    "Widening",
]

if TYPE_CHECKING:
    from velostream.connectors.base import Connector, Delivery, Sink, SinkContext, Source, SourceContext
    from velostream.connectors.capabilities import BadRecords, Counted, Partitioned, Widening
    from velostream.connectors.numbered import NumberedSource
    from velostream.connectors.tasks import TaskReader
    from velostream.model.options import Options, SourceOptions
    from velostream.model.traits import SourceTraits
    from velostream.model.uri import Uri

_WHERE = {
    **dict.fromkeys(
        ("BadRecords", "Counted", "Partitioned", "Widening"), "velostream.connectors.capabilities"
    ),
    "NumberedSource": "velostream.connectors.numbered",
    **dict.fromkeys(("Options", "SourceOptions"), "velostream.model.options"),
    "SourceTraits": "velostream.model.traits",
    "TaskReader": "velostream.connectors.tasks",
    "Uri": "velostream.model.uri",
}


def __getattr__(name: str) -> Any:
    """Lazy import: the registry imports options only, and `base` nothing of Spark."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE.get(name, "velostream.connectors.base")), name)


def __dir__() -> list[str]:
    """The names that a connector of one's own uses."""
    return sorted(__all__)
