"""Protocols through which the binder asks which relations and which connectors exist.

Implemented by `velo check`, the runtime and tests, each in its own way.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from velostream.model.options import Options
    from velostream.model.statements import ColumnDef, CreateSource, Query, SourceRef
    from velostream.model.uri import Uri


class RelationKind(StrEnum):
    """What kind of relation a name refers to."""

    TABLE = "table"
    STREAM = "stream"
    SOURCE = "source"
    VIEW = "view"


@dataclass(frozen=True)
class Relation:
    """A relation that FROM can name.

    `columns` None means that they are known only to the source: then any column name is accepted. `names` may
    hold just the column names where types are not known yet. `by_hand`: INSERT, UPDATE and DELETE are
    allowed. `view` is set for views and `source` for sources.
    """

    kind: RelationKind
    name: str
    columns: tuple[ColumnDef, ...] | None = None
    key: tuple[str, ...] = ()
    view: Query | None = None
    source: CreateSource | None = None
    by_hand: bool = False
    names: tuple[str, ...] | None = None

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """The columns that `*` stands for; None when they are known only to the source."""
        if self.columns is not None:
            return tuple(column.name for column in self.columns)
        return self.names


class Catalog(Protocol):
    """The relations that exist before a script runs. Names are case-insensitive."""

    def lookup(self, name: str) -> Relation | None:
        """The relation of that name, or None."""
        ...

    def names(self) -> Iterable[str]:
        """Every name, for "did you mean"."""
        ...


class ConnectorInfo(Protocol):
    """What the binder needs to know about a connector."""

    @property
    def name(self) -> str:
        """`kafka`, `file`, …"""
        ...

    @property
    def options(self) -> type[Options]:
        """The typed properties; field aliases are the names that users write."""
        ...

    @property
    def system_columns(self) -> tuple[str, ...]:
        """System columns of its sources, besides those of all sources."""
        ...

    @property
    def parse(self) -> Callable[[Uri], Mapping[str, str]]:
        """The properties that a URI itself carries."""
        ...

    @property
    def uri_of(self) -> Callable[[str], Uri]:
        """The URI that a SQL function with this argument stands for."""
        ...


class Discover(Protocol):
    """Asks a source for what only it knows."""

    def __call__(self, ref: SourceRef) -> Sequence[str] | None:
        """Its columns; None where they stay unknown. Raises why it cannot be reached."""
        ...


def unasked(ref: SourceRef) -> Sequence[str] | None:
    """Binding that reaches no source: None."""


class Connectors(Protocol):
    """The registered connectors."""

    def by_scheme(self, scheme: str) -> ConnectorInfo | None:
        """The connector of a URI scheme."""
        ...

    def by_function(self, name: str) -> ConnectorInfo | None:
        """The connector that a SQL function such as `kafka_topic` names."""
        ...

    def schemes(self) -> Iterable[str]:
        """Every URI scheme."""
        ...

    def functions(self) -> Iterable[str]:
        """Every SQL function that names a source."""
        ...

    def names(self) -> Iterable[str]:
        """Every connector's name."""
        ...


@dataclass(frozen=True)
class EmptyCatalog:
    """A catalogue without relations, for a data directory that does not exist yet."""

    def lookup(self, name: str) -> Relation | None:
        """None."""
        return None

    def names(self) -> Iterable[str]:
        """Nothing."""
        return ()
