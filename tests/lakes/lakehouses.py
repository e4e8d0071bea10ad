"""Places with tables of a lake: how they are named in statements, made and read by others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from iceberg_server import CREDENTIAL
from velostream.config import Settings
from velostream.connectors.base import SinkContext
from velostream.engine.opening.connect import open_sink
from velostream.model.columns import WEIGHT
from velostream.model.uri import Uri

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyiceberg.catalog import Catalog

    from iceberg_server import IcebergServer
    from velostream.connectors.base import Sink
    from velostream.model.changes import BadRow


class Lakehouse(ABC):
    """Tables of one kind."""

    properties: Mapping[str, str] = {}
    """What a statement that makes a table has to say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[Sink] = []
        """Sinks that a test opened."""

    def close(self) -> None:
        """Close what a test opened."""
        for sink in self.opened:
            sink.close()

    @abstractmethod
    def uri(self, table: str) -> str:
        """How a statement names a table."""

    @abstractmethod
    def make(self, table: str, schema: pa.Schema, rows: pa.Table | None = None) -> None:
        """Make a table, as its owner does."""

    @abstractmethod
    def drop(self, table: str) -> None:
        """Remove a table."""

    @abstractmethod
    def read(self, table: str) -> pa.Table:
        """The rows that are there now."""

    @abstractmethod
    def commits(self, table: str) -> int:
        """How many commits the table has had."""

    def with_(self, **further: str) -> str:
        """The properties as a clause."""
        named = {name.replace("_", "."): value for name, value in further.items()}
        written = ", ".join(f'"{name}" = "{value}"' for name, value in {**self.properties, **named}.items())
        return f"WITH ({written})" if written else ""

    def rows(self, table: str) -> Counter[tuple[Any, ...]]:
        """The rows that are there now, and how often."""
        return Counter(tuple(row.values()) for row in self.read(table).to_pylist())


class DeltaFolder(Lakehouse):
    """Folders of Delta Lake."""

    def uri(self, table: str) -> str:
        return f"delta://{self.folder / table}"

    def make(self, table: str, schema: pa.Schema, rows: pa.Table | None = None) -> None:
        from deltalake import write_deltalake

        made = DeltaTable.create(str(self.folder / table), schema)
        if rows is not None:
            write_deltalake(made, rows, mode="append")

    def drop(self, table: str) -> None:
        import shutil

        shutil.rmtree(self.folder / table)

    def read(self, table: str) -> pa.Table:
        return DeltaTable(str(self.folder / table)).to_pyarrow_table()

    def commits(self, table: str) -> int:
        return DeltaTable(str(self.folder / table)).version() + 1


class IcebergPlace(Lakehouse):
    """Tables of a catalogue of Iceberg."""

    @abstractmethod
    def open_catalog(self) -> Catalog:
        """Open the catalogue, as others do."""

    @cached_property
    def catalog(self) -> Catalog:
        """The catalogue of others."""
        return self.open_catalog()

    def close(self) -> None:
        super().close()
        if "catalog" in vars(self):
            self.catalog.close()

    def make(self, table: str, schema: pa.Schema, rows: pa.Table | None = None) -> None:
        catalog = self.catalog
        catalog.create_namespace_if_not_exists("ns")
        made = catalog.create_table(("ns", table), schema)
        if rows is not None:
            made.append(rows)

    def drop(self, table: str) -> None:
        self.catalog.drop_table(("ns", table))

    def read(self, table: str) -> pa.Table:
        try:
            found = self.catalog.load_table(("ns", table))
        except NoSuchTableError as exc:
            raise AssertionError("not there") from exc
        return found.scan().to_arrow()

    def commits(self, table: str) -> int:
        return len(self.catalog.load_table(("ns", table)).metadata.snapshots)


class IcebergFolder(IcebergPlace):
    """A warehouse on this machine."""

    properties: Mapping[str, str] = {"table.create.if.missing": "true"}

    def uri(self, table: str) -> str:
        return f"iceberg://{self.folder}/warehouse/ns.{table}"

    def open_catalog(self) -> Catalog:
        folder = self.folder / "warehouse"
        folder.mkdir(exist_ok=True)
        return SqlCatalog("default", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")


class IcebergRest(IcebergPlace):
    """Tables of a catalogue that is a server."""

    def __init__(self, folder: Path, server: IcebergServer, namespace: str) -> None:
        super().__init__(folder)
        self.server = server
        self._prefix = namespace
        self.storage: Mapping[str, str] = {}
        """What others have to know of the store."""
        self.properties = {
            "uri": server.uri,
            "credential": CREDENTIAL,
            "table.create.if.missing": "true",
        }

    def uri(self, table: str) -> str:
        return f"iceberg://catalogue/ns.{self._prefix}{table}"

    def open_catalog(self) -> Catalog:
        tokens = f"{self.server.uri}/v1/oauth/tokens"
        return RestCatalog(
            "reader",
            **{"uri": self.server.uri, "credential": CREDENTIAL, "oauth2-server-uri": tokens, **self.storage},
        )

    def make(self, table: str, schema: pa.Schema, rows: pa.Table | None = None) -> None:
        super().make(f"{self._prefix}{table}", schema, rows)

    def drop(self, table: str) -> None:
        super().drop(f"{self._prefix}{table}")

    def read(self, table: str) -> pa.Table:
        return super().read(f"{self._prefix}{table}")

    def commits(self, table: str) -> int:
        return super().commits(f"{self._prefix}{table}")


class Writer:
    """A job that writes rows to a table, step by step, and can be opened again."""

    def __init__(
        self, lake: Lakehouse, table: str, schema: pa.Schema, key: Sequence[str] = (), **properties: str
    ) -> None:
        self.lake, self.schema, self.key = lake, schema, tuple(key)
        self.refused: list[str] = []
        self.recorded: Mapping[str, Any] | None = None
        self._uri = lake.uri(table)
        self._properties = {
            **lake.properties,
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        self.state = lake.folder / f"state-{table}-{len(list(lake.folder.glob('state-*')))}"
        self._steps = 0
        self.sink = self.open()

    def open(self, recorded: Mapping[str, Any] | None = None, state: Path | None = None) -> Sink:
        """Open the sink, as a job does at each start."""

        def refuse(rows: list[BadRow]) -> None:
            self.refused += [row.reason for row in rows]

        context = SinkContext(
            state or self.state,
            self.schema,
            self.key,
            unique=bool(self.key),
            job="writer",
            resumed=recorded is not None,
            refuse=refuse,
        )
        settings = Settings(data_dir=self.lake.folder / "data")
        sink = open_sink(Uri(self._uri), self._properties, settings, context)
        self.lake.opened.append(sink)
        sink.recover(recorded)
        return sink

    def again(self) -> None:
        """Close the sink, and open it as after a restart."""
        self.sink.close()
        self.sink = self.open(self.recorded)

    def changes(self, added: Sequence[Mapping[str, Any]], gone: Sequence[Mapping[str, Any]] = ()) -> pa.Table:
        """The rows of a step, as a sink gets them."""
        import pyarrow as pa

        rows = pa.Table.from_pylist([*gone, *added], schema=self.schema)
        weights = pa.array([-1] * len(gone) + [1] * len(added), pa.int64())
        return rows.append_column(WEIGHT, weights) if gone else rows

    def write(self, added: Sequence[Mapping[str, Any]], gone: Sequence[Mapping[str, Any]] = ()) -> None:
        """One step."""
        rows = self.changes(added, gone)
        self.sink.intend(self._steps, rows)
        self.recorded = self.sink.write(self._steps, rows)
        self._steps += 1
