"""The contract of sources, kept by a table of SQLite."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, ClassVar

import pytest
from polled_worlds import PolledWorld

from velostream.testing.contract import SourceContract, World

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.conftest import WaitUntil

pytestmark = [pytest.mark.spark, pytest.mark.sampled(2)]
OFTEN = {"poll.interval": "20ms"}


class Lite(PolledWorld):
    def __init__(self, folder: Path, wait_until: WaitUntil, properties: Mapping[str, str]) -> None:
        super().__init__(folder, wait_until)
        self.properties = {**OFTEN, **properties}  # type: ignore[misc]
        self.sql = sqlite3.connect(folder / "app.db", isolation_level=None)
        self.sql.execute("PRAGMA journal_mode = WAL")
        self.sql.execute("CREATE TABLE rows (id BIGINT, name TEXT, number INTEGER PRIMARY KEY)")

    def uri(self, table: str) -> str:
        return f"sql://sqlite:{self._folder}/app.db?table={table}"

    def insert(self, rows: Sequence[tuple[object, ...]]) -> None:
        self.sql.execute("BEGIN")
        self.sql.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)
        self.sql.execute("COMMIT")

    def give_bad(self) -> bytes | None:
        number = next(self._numbers)
        self.until_polled(lambda: self.insert([("seven", "bad", number)]))
        return json.dumps({"id": "seven", "name": "bad", "number": number}).encode()

    def break_off(self) -> bool:
        self.sql.execute("DROP TABLE rows")
        return True


class TestPolled(SourceContract):
    kinds: ClassVar[list[dict[str, str]]] = [{}, {"incremental.column": "number"}]

    @pytest.fixture(params=kinds, ids=["by difference", "by column"])
    def world(self, tmp_path: Path, wait_until: WaitUntil, request: pytest.FixtureRequest) -> Iterator[World]:
        made = Lite(tmp_path, wait_until, request.param)
        yield made
        made.sql.close()
