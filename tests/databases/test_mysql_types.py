"""Every type of MySQL and MariaDB: a load and the binlog give the same values of the same rows."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from velostream.connectors.databases.change_log import ChangeLog
from velostream.connectors.mysql.client.connections import Client
from velostream.connectors.mysql.options import MySqlOptions
from velostream.connectors.mysql.read.changes import TableChanges

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import WaitUntil

    from mysql_servers import MySqlServer, Session

TEXT = "aZ 09'\"\\%\t\n\x00"
BOTH = {
    "t": "tinyint",
    "tu": "tinyint unsigned",
    "flag": "boolean",
    "s": "smallint",
    "su": "smallint unsigned",
    "m": "mediumint",
    "mu": "mediumint unsigned zerofill",
    "i": "int",
    "iu": "int unsigned",
    "b": "bigint",
    "bu": "bigint unsigned",
    "y": "year",
    "f": "float",
    "d": "double",
    "n9": "decimal(9,0)",
    "n12": "decimal(12,2)",
    "n18": "decimal(18,18)",
    "n38": "decimal(38,10)",
    "nu": "decimal(20,3) unsigned",
    "bit1": "bit(1)",
    "bit9": "bit(9)",
    "bit64": "bit(64)",
    "day": "date",
    "dt": "datetime",
    "dt3": "datetime(3)",
    "dt6": "datetime(6)",
    "ts": "timestamp NULL",
    "ts1": "timestamp(1) NULL",
    "ts6": "timestamp(6) NULL",
    "tm": "time",
    "tm2": "time(2)",
    "tm6": "time(6)",
    "c": "char(12) CHARACTER SET utf8mb4",
    "cl": "char(12) CHARACTER SET latin1",
    "v": "varchar(40) CHARACTER SET utf8mb4",
    "v3": "varchar(400) CHARACTER SET utf8mb3",
    "vl": "varchar(40) CHARACTER SET latin1",
    "vg": "varchar(40) CHARACTER SET greek",
    "vj": "varchar(40) CHARACTER SET sjis",
    "v16": "varchar(40) CHARACTER SET utf16",
    "va": "varchar(40) CHARACTER SET ascii",
    "tx": "text CHARACTER SET latin1",
    "lt": "longtext CHARACTER SET utf8mb4",
    "bi": "binary(6)",
    "vb": "varbinary(300)",
    "bl": "blob",
    "e": "enum('one','zwei ''q''','trois é') CHARACTER SET latin1",
    "st": "set('a','b','ç','d') CHARACTER SET utf8mb4",
    "g": "geometry",
    "js": "json",
}
MARIADB = {"u": "uuid", "a6": "inet6", "a4": "inet4"}


def values(rng: random.Random, kind: str) -> Any:
    """A value of each kind, as the driver takes it."""
    text = "".join(rng.choice(TEXT) for _ in range(rng.randint(0, 10)))
    accents = "".join(rng.choice("éüß€aB ") for _ in range(rng.randint(0, 10)))
    size = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}.get(
        kind.partition(" ")[0]
    )
    raw = bytes(rng.choice([0, 0, 65, 255]) for _ in range(rng.randint(0, 6)))
    if size is not None:
        low, high = (0, 2**size - 1) if "unsigned" in kind else (-(2 ** (size - 1)), 2 ** (size - 1) - 1)
        return rng.choice([low, high, 0, 1, rng.randint(low, high)])
    minute = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
    second = f"{minute}:{rng.randint(0, 59):02d}.{rng.randint(0, 999999):06d}"
    name = kind.partition("(")[0].partition(" ")[0]
    if name == "decimal":
        precision, scale = map(int, kind.partition("(")[2].partition(")")[0].split(","))
        digits = rng.choice([0, 10**precision - 1, rng.randrange(10**precision), rng.randrange(1000)])
        sign = "" if "unsigned" in kind else rng.choice(["", "-"])
        padded = str(digits).rjust(scale + 1, "0")
        return sign + (f"{padded[:-scale]}.{padded[-scale:]}" if scale else padded)
    if name == "bit":
        return rng.randrange(2 ** int(kind.split("(")[1].rstrip(")")))
    return {
        "boolean": lambda: rng.choice([0, 1, 7]),
        "year": lambda: rng.choice([1901, 2155, 0, 2024]),
        "float": lambda: rng.choice([0.1, -1e30, 16777217, rng.random(), 0]),
        "double": lambda: rng.choice([0.1, 1e300, -2.5e-300, rng.random() * 10 ** rng.randint(-20, 20), 0]),
        "date": lambda: rng.choice(["1000-01-01", "9999-12-31", "1969-12-31", "2024-02-29", "0001-01-01"]),
        "datetime": lambda: (
            f"{rng.choice([1000, 1900, 1969, 2024, 9998])}-{rng.randint(1, 12):02d}-28 {second}"
        ),
        "timestamp": lambda: f"{rng.choice([1971, 2024, 2037])}-{rng.randint(1, 12):02d}-28 {second}",
        "time": lambda: rng.choice(
            [f"-{second}", second, "838:59:59", "-838:59:58.5", "00:00:00", "-00:00:00.5"]
        ),
        "binary": lambda: raw,
        "varbinary": lambda: raw * rng.choice([1, 40]),
        "blob": lambda: raw,
        "enum": lambda: rng.choice(["one", "zwei 'q'", "trois é"]),
        "set": lambda: ",".join(rng.sample(["a", "b", "ç", "d"], rng.randint(0, 4))),
        "json": lambda: json.dumps(document(rng, 0), ensure_ascii=rng.random() < 0.5),
        "uuid": lambda: rng.choice(
            [
                "123e4567-e89b-12d3-a456-426655440000",
                "01890a5d-ac96-774b-bcce-b302099a8057",
                "ffffffff-ffff-4fff-bfff-ffffffffff00",
            ]
        ),
        "inet6": lambda: rng.choice(["::", "::1", "2001:db8::ff00:42:8329", "::ffff:10.0.0.1", "1::"]),
        "inet4": lambda: rng.choice(["0.0.0.0", "10.0.0.1", "255.255.255.0"]),
    }.get(
        name,
        lambda: (
            text.strip("\0")
            if "ascii" in kind
            else rng.choice([text, "Ωμέγα"])
            if "greek" in kind
            else rng.choice([text.replace("\\", ""), "日本語 テスト"])
            if "sjis" in kind
            else rng.choice([text, accents, accents + "\x81" if "latin1" in kind else accents])
            if "latin1" in kind
            else rng.choice([text, accents, "日本語", "" if "utf8mb3" in kind else "😀 x"])
        ),
    )()


def document(rng: random.Random, depth: int) -> Any:
    """A JSON document."""
    kind = rng.randrange(9 if depth < 3 else 7)
    if kind == 7:
        return [document(rng, depth + 1) for _ in range(rng.randint(0, 5))]
    if kind == 8:
        return {
            rng.choice("abcdé") * rng.randint(0, 3): document(rng, depth + 1)
            for _ in range(rng.randint(0, 5))
        }
    return [
        None,
        True,
        rng.choice([0, -1, 40000, -40000, 2**31, -(2**40), 2**64 - 1]),
        rng.choice(
            [0.5, -1.25e-7, 1e15, 1e16, 123456789.125, 1e-5, 1.7976931348623157e308, 1e20, 100.0, 5e-324]
        ),
        rng.choice(["", "text", 'é"\\\n\t\x01/ 😀', "x" * 300]),
        rng.random() * 10 ** rng.randint(-12, 25),
        False,
    ][kind]


def place(column: str, kind: str) -> str:
    """How a value is given: shapes by a function."""
    return "ST_GeomFromText('POINT(1 2)')" if kind == "geometry" else "%s"


class Read:
    """A table, read by the connector into a log of changes."""

    def __init__(self, server: MySqlServer, database: str, folder: Path, readers: str = "1") -> None:
        options = MySqlOptions.model_validate(
            {"host": "127.0.0.1", "port": str(server.port), "username": "app", "password": "secret"}
            | {"database": database, "table": "kinds", "cdc": "true", "parallel.readers": readers}
        )
        folder.mkdir()
        self.log = ChangeLog(folder, "test")
        self.log.open()
        self._reader = TableChanges(Client(options), options)
        self._stop = threading.Event()
        self.failures: list[BaseException] = []
        self._reader.load(self.log, 0, self._stop)
        self._thread = threading.Thread(target=self._follow)

    def _follow(self) -> None:
        try:
            self._reader.follow(self.log, self._stop)
        except BaseException as exc:
            self.failures.append(exc)

    def follow(self, wait_until: WaitUntil) -> None:
        """Read what has come since."""
        self._thread.start()
        try:
            wait_until(lambda: self.failures or self._reader.caught_up(self.log))
        finally:
            self._stop.set()
            self._thread.join()
        assert not self.failures, self.failures

    def rows(self) -> dict[Any, dict[str, Any]]:
        """The rows that are there, by key."""
        found: dict[Any, dict[str, Any]] = {}
        for _, batch in self.log.between(None, self.log.end):
            for row in batch.to_pylist():
                gone = row.pop("_tombstone")
                row.pop("_timestamp")
                found.pop(row["_key"], None)
                if not gone:
                    found[row["_key"]] = row
        return found

    def close(self) -> None:
        self._reader.close()
        self.log.close()


def test_a_load_and_the_binlog_agree(
    mysql: MySqlServer,
    mysql_database: tuple[str, Session],
    tmp_path: Path,
    rng: random.Random,
    rounds: Callable[[int, int], int],
    wait_until: WaitUntil,
) -> None:
    name, sql = mysql_database
    kinds = BOTH | (MARIADB if mysql.kind == "mariadb" else {})
    columns = ", ".join(f"`{column}` {kind}" for column, kind in kinds.items())
    sql.execute(f"CREATE TABLE kinds (id int PRIMARY KEY, {columns})")
    followed = Read(mysql, name, tmp_path / "followed")

    def insert(first: int, count: int) -> None:
        rows = []
        for number in range(first, first + count):
            given = [None if rng.random() < 0.1 else values(rng, kind) for kind in kinds.values()]
            marks = ", ".join(place(*each) for each in kinds.items())
            taken = [value for value, kind in zip(given, kinds.values(), strict=True) if kind != "geometry"]
            with sql.connection.cursor() as cursor:
                rows.append(cursor.mogrify(f"({number}, {marks})", taken))
        sql.execute(f"INSERT INTO kinds VALUES {', '.join(rows)}")

    count = rounds(40, 2000)
    for first in range(0, count, 20):
        insert(first, 20)
    sql.execute("INSERT INTO kinds (id) VALUES (-1)")
    sql.execute("UPDATE kinds SET i = 5, v = 'changed' WHERE id % 3 = 0")
    sql.execute("UPDATE kinds SET id = id + 100000 WHERE id % 7 = 0")
    sql.execute("DELETE FROM kinds WHERE id % 11 = 0")
    followed.follow(wait_until)
    loaded = Read(mysql, name, tmp_path / "loaded", readers="2")
    mine, theirs = followed.rows(), loaded.rows()
    assert mine.keys() == theirs.keys()
    for key, row in theirs.items():
        different = {
            name: (value, mine[key][name]) for name, value in row.items() if mine[key][name] != value
        }
        assert different == {}, key
    followed.close()
    loaded.close()


@pytest.mark.parametrize("settings", [{"log-bin-compress": "ON", "log-bin-compress-min-len": "10"}])
def test_compressed_events(
    settings: dict[str, str], mariadb: MySqlServer, tmp_path: Path, wait_until: WaitUntil
) -> None:
    with mariadb.connect() as sql:
        sql.execute("CREATE DATABASE packed")
        sql.execute("CREATE TABLE packed.kinds (id int PRIMARY KEY, v text)")
        for name, value in settings.items():
            sql.execute(f"SET GLOBAL {name.replace('-', '_')} = {value}")
        try:
            followed = Read(mariadb, "packed", tmp_path / "followed")
            sql.execute("INSERT INTO packed.kinds VALUES (1, REPEAT('a', 1000)), (2, REPEAT('b', 1000))")
            sql.execute("UPDATE packed.kinds SET v = REPEAT('c', 500) WHERE id = 1")
            sql.execute("DELETE FROM packed.kinds WHERE id = 2")
            followed.follow(wait_until)
            assert [(row["id"], row["v"]) for row in followed.rows().values()] == [(1, "c" * 500)]
            followed.close()
        finally:
            for name in settings:
                sql.execute(f"SET GLOBAL {name.replace('-', '_')} = DEFAULT")
            sql.execute("DROP DATABASE packed")
