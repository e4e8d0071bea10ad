"""The contracts of sources and sinks, kept by tables of PostgreSQL."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

import pytest
from polled_worlds import PolledWorld

from velostream.config import Settings
from velostream.connectors.base import SinkContext
from velostream.engine.opening.connect import open_sink, open_source
from velostream.model.statements import SourceRef
from velostream.model.uri import Uri
from velostream.testing.contract import COLUMNS, Place, Row, SinkContract, SourceContract, World

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import psycopg
    from tests.conftest import WaitUntil

    from database_servers import Postgres
    from velostream.connectors.base import Sink, Source

pytestmark = [pytest.mark.spark, pytest.mark.sampled(2)]


class Followed(World):
    """A table without a key of the contract's.

    Rows have a number of their own, so that equal rows are two.
    """

    properties: ClassVar[Mapping[str, str]] = {"cdc": "true"}

    def __init__(self, postgres: Postgres, name: str, connection: psycopg.Connection, folder: Path) -> None:
        self._postgres, self._name, self._sql, self._folder = postgres, name, connection, folder
        self._numbers = itertools.count()
        connection.execute("CREATE TABLE rows (id bigint, name text, number numeric(9,0) PRIMARY KEY)")

    def open(self, *, resumed: bool = False, missing: bool = False) -> Source:
        uri = Uri(self._postgres.uri(self._name, "nowhere" if missing else "rows"))
        return open_source(
            SourceRef("__source_1", uri, self.properties),
            Settings(data_dir=self._folder / "data"),
            self._folder / "spool",
            known=None,
            once=False,
            table=True,
            owner="job",
            resumed=resumed,
        )

    def give(self, rows: Sequence[Row]) -> Sequence[Row]:
        with self._sql.transaction():
            for id_, name in rows:
                self._sql.execute("INSERT INTO rows VALUES (%s, %s, %s)", (id_, name, next(self._numbers)))
        return rows

    def give_bad(self) -> bytes | None:
        self._sql.execute("ALTER TABLE rows ALTER number DROP DEFAULT")
        self._sql.execute("INSERT INTO rows VALUES (7, 'bad', 'NaN')")
        return json.dumps({"id": "7", "name": "bad", "number": "NaN"}).encode()

    def break_off(self) -> bool:
        self._sql.execute("ALTER TABLE rows DROP name")
        self._sql.execute("INSERT INTO rows VALUES (1, 999)")
        return True


class TestFollowed(SourceContract):
    @pytest.fixture
    def world(self, postgres: Postgres, database: tuple[str, psycopg.Connection], tmp_path: Path) -> World:
        return Followed(postgres, *database, tmp_path)


class Polled(PolledWorld):
    """The same table, compared with what it was."""

    def __init__(
        self,
        postgres: Postgres,
        name: str,
        connection: psycopg.Connection,
        folder: Path,
        wait_until: WaitUntil,
    ) -> None:
        super().__init__(folder, wait_until)
        self._postgres, self._name, self._sql = postgres, name, connection
        connection.execute("CREATE TABLE rows (id bigint, name text, number numeric(9,0) PRIMARY KEY)")

    def uri(self, table: str) -> str:
        return self._postgres.uri(self._name, table)

    def insert(self, rows: Sequence[tuple[object, ...]]) -> None:
        with self._sql.transaction():
            for row in rows:
                self._sql.execute("INSERT INTO rows VALUES (%s, %s, %s)", row)

    def give_bad(self) -> bytes | None:
        self.until_polled(lambda: self.insert([(7, "bad", "NaN")]))
        return json.dumps({"id": "7", "name": "bad", "number": "NaN"}).encode()

    def break_off(self) -> bool:
        self._sql.execute("DROP TABLE rows")
        return True


class TestPolled(SourceContract):
    @pytest.fixture
    def world(
        self,
        postgres: Postgres,
        database: tuple[str, psycopg.Connection],
        tmp_path: Path,
        wait_until: WaitUntil,
    ) -> World:
        return Polled(postgres, *database, tmp_path, wait_until)


class Written(Place):
    """A table, written by key or appended to."""

    def __init__(
        self, postgres: Postgres, name: str, connection: psycopg.Connection, folder: Path, *, keyed: bool
    ) -> None:
        self._postgres, self._name, self._sql, self._folder, self._keyed = (
            postgres,
            name,
            connection,
            folder,
            keyed,
        )
        self._sql.execute("CREATE TABLE rows (id bigint, name text)")
        if keyed:
            self._sql.execute("ALTER TABLE rows ADD PRIMARY KEY (id)")

    def open(self, *, resumed: bool = False) -> Sink:
        key = ("id",) if self._keyed else ()
        context = SinkContext(
            self._folder / "state", COLUMNS, key, unique=self._keyed, job="contract", resumed=resumed
        )
        settings = Settings(data_dir=self._folder / "data")
        return open_sink(Uri(self._postgres.uri(self._name, "rows")), {}, settings, context)

    def there(self) -> Counter[Row]:
        return Counter(self._sql.execute("SELECT id, name FROM rows").fetchall())


class TestWritten(SinkContract):
    @pytest.fixture(params=["by key", "appended"])
    def place(
        self,
        postgres: Postgres,
        database: tuple[str, psycopg.Connection],
        tmp_path: Path,
        request: pytest.FixtureRequest,
    ) -> Place:
        return Written(postgres, *database, tmp_path, keyed=request.param == "by key")
