"""The contracts of sources and sinks, kept by tables of MySQL and MariaDB."""

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

    from tests.conftest import WaitUntil

    from mysql_servers import MySqlServer, Session
    from velostream.connectors.base import Sink, Source

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


class Followed(World):
    """A table without a key of the contract's.

    Rows have a number of their own, so that equal rows are two.
    """

    properties: ClassVar[Mapping[str, str]] = {"cdc": "true"}

    def __init__(self, server: MySqlServer, name: str, sql: Session, folder: Path) -> None:
        self._server, self._name, self._sql, self._folder = server, name, sql, folder
        self._numbers = itertools.count()
        sql.execute("CREATE TABLE `rows` (id bigint, name text, number bigint PRIMARY KEY, day date)")

    def open(self, *, resumed: bool = False, missing: bool = False) -> Source:
        uri = Uri(self._server.uri(self._name, "nowhere" if missing else "rows"))
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
                values = (id_, name, next(self._numbers))
                self._sql.execute("INSERT INTO `rows` VALUES (%s, %s, %s, NULL)", values)
        return rows

    def give_bad(self) -> bytes | None:
        self._sql.execute("SET SESSION sql_mode = ''")
        self._sql.execute("INSERT INTO `rows` VALUES (7, 'bad', -1, '0000-00-00')")
        return json.dumps({"id": "7", "name": "bad", "number": "-1", "day": "0000-00-00"}).encode()

    def break_off(self) -> bool:
        self._sql.execute("ALTER TABLE `rows` DROP name")
        self._sql.execute("INSERT INTO `rows` VALUES (1, 999, NULL)")
        return True


class TestFollowed(SourceContract):
    @pytest.fixture
    def world(self, mysql: MySqlServer, mysql_database: tuple[str, Session], tmp_path: Path) -> World:
        return Followed(mysql, *mysql_database, tmp_path)


class Polled(PolledWorld):
    """The same table, by its number, which grows."""

    properties: ClassVar[Mapping[str, str]] = {"poll.interval": "20ms", "incremental.column": "number"}

    def __init__(
        self, server: MySqlServer, name: str, sql: Session, folder: Path, wait_until: WaitUntil
    ) -> None:
        super().__init__(folder, wait_until)
        self._server, self._name, self._sql = server, name, sql
        sql.execute("CREATE TABLE `rows` (id bigint, name text, number bigint PRIMARY KEY, day date)")

    def uri(self, table: str) -> str:
        return self._server.uri(self._name, table)

    def insert(self, rows: Sequence[tuple[object, ...]]) -> None:
        with self._sql.transaction():
            for row in rows:
                self._sql.execute("INSERT INTO `rows` VALUES (%s, %s, %s, NULL)", row)

    def give_bad(self) -> bytes | None:
        number = next(self._numbers)
        self._sql.execute("SET SESSION sql_mode = ''")
        bad = f"INSERT INTO `rows` VALUES (7, 'bad', {number}, '0000-00-00')"
        self.until_polled(lambda: self._sql.execute(bad))
        return json.dumps({"id": "7", "name": "bad", "number": str(number), "day": "0000-00-00"}).encode()

    def break_off(self) -> bool:
        self._sql.execute("DROP TABLE `rows`")
        return True


class TestPolled(SourceContract):
    @pytest.fixture
    def world(
        self,
        mysql: MySqlServer,
        mysql_database: tuple[str, Session],
        tmp_path: Path,
        wait_until: WaitUntil,
    ) -> World:
        return Polled(mysql, *mysql_database, tmp_path, wait_until)


class Written(Place):
    """A table, written by key or appended to."""

    def __init__(self, server: MySqlServer, name: str, sql: Session, folder: Path, *, keyed: bool) -> None:
        self._server, self._name, self._sql = server, name, sql
        self._folder, self._keyed = folder, keyed
        sql.execute(f"CREATE TABLE `rows` (id bigint {'PRIMARY KEY' if keyed else ''}, name text)")

    def open(self, *, resumed: bool = False) -> Sink:
        key = ("id",) if self._keyed else ()
        context = SinkContext(
            self._folder / "state", COLUMNS, key, unique=self._keyed, job="contract", resumed=resumed
        )
        settings = Settings(data_dir=self._folder / "data")
        return open_sink(Uri(self._server.uri(self._name, "rows")), {}, settings, context)

    def there(self) -> Counter[Row]:
        return Counter(self._sql.execute("SELECT id, name FROM `rows`"))


class TestWritten(SinkContract):
    @pytest.fixture(params=["by key", "appended"])
    def place(
        self,
        mysql: MySqlServer,
        mysql_database: tuple[str, Session],
        tmp_path: Path,
        request: pytest.FixtureRequest,
    ) -> Place:
        return Written(mysql, *mysql_database, tmp_path, keyed=request.param == "by key")
