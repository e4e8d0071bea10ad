"""Origins of schemas of binary records: a file, or a registry with an id in each record."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from velostream.errors import FileMissingError, SourceConfigError, SourceError
from velostream.formats.columns.dataframes import RECORD
from velostream.formats.schemas.registry_client import Registered, Registry
from velostream.formats.schemas.wire import schema_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame

    from velostream.formats.decoder import FormatSettings

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
_LARGEST_FILE = 8 * 1024 * 1024


class SchemaLanguage(Protocol[S_co]):
    """Parses schemas of one language."""

    kind: str
    """The registry's name of the language."""

    def from_file(self, path: Path) -> S_co:
        """From a file."""

    def from_registry(self, registry: Registry, found: Registered) -> S_co:
        """From a registry."""


@dataclass
class Schemas(Generic[S]):
    """The schemas of one source's records, fetched as they are needed."""

    language: SchemaLanguage[S]
    settings: FormatSettings
    registry: Registry | None = None
    known: dict[int, S] = field(default_factory=dict)
    """By id. Ids unknown to the registry are asked for again: they may be registered late."""
    _reader: S | None = None

    def __post_init__(self) -> None:
        if self.settings.registry_url is not None:
            self.registry = Registry(self.settings.registry_url)
        elif self.settings.schema_file is None:
            raise SourceConfigError(
                f"{self.language.kind.capitalize()} records need their schema",
                hint='give "schema.registry.url" or "schema.file"',
            )

    def reader(self, sample: Sequence[bytes] = ()) -> S | None:
        """The schema to read with: of the file, the newest of the subject, or that of the first record."""
        self.learn(schema_ids(list(sample)))
        if self._reader is None:
            self._reader = self._find_reader()
        return self._reader

    def _find_reader(self) -> S | None:
        if self.settings.schema_file is not None:
            return self.language.from_file(_readable(self.settings.schema_file))
        assert self.registry is not None
        if self.settings.subject is not None:
            found = self.registry.latest(self.settings.subject)
            if found is not None:
                self.known[found.id] = self._parsed(found)
                return self.known[found.id]
        return next(iter(self.known.values()), None)

    def learn(self, ids: Iterable[int]) -> None:
        """Fetch the schemas of these ids; SourceNetworkError when the registry does not answer."""
        if self.registry is None:
            return
        for number in sorted(set(ids) - self.known.keys()):
            found = self.registry.by_id(number)
            if found is None:
                continue
            try:
                self.known[number] = self._parsed(found)
            except SourceConfigError:
                # Of another language, or with types that no column
                # has: its records are bad, others are not affected.
                continue

    def learn_all(self, records: DataFrame) -> None:
        """Fetch all schemas that a frame's records name, which reads the frame."""
        if self.registry is None:
            return
        headers = records.where(f"octet_length({RECORD}) >= 5 AND substring({RECORD}, 1, 1) = X'00'")
        numbers = headers.selectExpr(
            f"CAST(conv(hex(substring({RECORD}, 2, 4)), 16, 10) AS BIGINT) AS id"
        ).distinct()
        self.learn(row["id"] for row in numbers.collect())

    def _parsed(self, found: Registered) -> S:
        assert self.registry is not None
        if found.kind != self.language.kind:
            raise SourceConfigError(f"schema {found.id} is {found.kind}, not {self.language.kind}")
        return self.language.from_registry(self.registry, found)


def _readable(name: str) -> Path:
    path = Path(name).expanduser()
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise SourceConfigError(f'schema file "{name}" is larger than 8 MB')
    except FileNotFoundError as exc:
        raise FileMissingError(f'schema file "{name}" does not exist') from exc
    except OSError as exc:
        raise SourceError(f'schema file "{name}" cannot be read: {exc.strerror}') from exc
    return path
