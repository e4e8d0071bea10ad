"""Names that quote, escape, hide or end what they stand in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from refusals import refusal
from velostream.errors import VelostreamError
from velostream.runtime.instance import open_instance
from velostream.sql.types import quote

if TYPE_CHECKING:
    from pathlib import Path

GOOD = [
    "a'b", 'a"b', "a`b", "a\nb", "..", ".", "\0", "a\0b", "x" * 60, "😀", "ü", "select", "table", "T",
    "a b", " a", "a.b", "%41", "a%2Fb", "@1", "t@1", "-- x", "a;b", "\u202eabc", "e\u0301", "é", "_timestamp",
]  # fmt: skip
BAD_TABLES = ["../x", "a/b", "/*", "", "  ", "__k1", "__result", "${HOME}", "x" * 300, "dead_letters"]
BAD_COLUMNS = ["__k1", "__result", "__expires", "_weight", "_rowid", "_position", "${HOME}"]


def test_hostile_names_of_tables_and_columns(tmp_path: Path) -> None:
    outside = set(tmp_path.iterdir())
    with open_instance(tmp_path / "data") as database:
        for name in GOOD:
            table = database.create_table(name, [{"id": 1, name: 2}], key=[name])
            database.sql(f"INSERT INTO {quote(name)} VALUES (3, 4)")
            found = database.sql(
                f"SELECT {quote(name)} AS {quote(name)} FROM {quote(name)} ORDER BY id"
            ).arrow()
            assert found.to_pydict() == {name: [2, 4]}
            assert table.column_values(name, f"{quote(name)} > 2") == [4]
            assert database.sql(f"DESCRIBE {quote(name)}").rows()
    with open_instance(tmp_path / "data") as database:
        for name in GOOD:
            assert database.table(name).get(4).id == 3
        for name in GOOD:
            database.sql(f"DROP TABLE {quote(name)}")
        assert database.store.names() == ["dead_letters"]
    assert set(tmp_path.iterdir()) - outside == {tmp_path / "data"}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_names_that_no_table_can_have(tmp_path: Path, name: str) -> None:
    with open_instance(tmp_path / "data") as database:
        with pytest.raises(VelostreamError) as caught:
            database.create_table(name, [{"id": 1}])
        assert len(caught.value.message) < 120
        assert database.store.names() == ["dead_letters"]


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_names_that_no_column_can_have(tmp_path: Path, name: str) -> None:
    with open_instance(tmp_path / "data") as database:
        with pytest.raises(VelostreamError):
            database.create_table("t", [{"id": 1, name: 2}])
        database.create_table("base", [{"id": 1}])
        if "$" not in name:
            for query in (
                f"SELECT id AS {name} FROM base",
                f"SELECT id, COUNT(*) AS {name} FROM base GROUP BY id",
            ):
                with refusal("sql.syntax", name.strip("`")):
                    database.sql(f"CREATE TABLE u AS {query}")


def test_names_that_differ_in_case_are_the_same(tmp_path: Path) -> None:
    with open_instance(tmp_path / "data") as database:
        database.create_table("Straße", [{"a": 1}])
        for name in ("straße", "STRAßE"):
            with refusal("sql.duplicate_name"):
                database.create_table(name, [{"a": 1}])
        with refusal("sql.duplicate_name", "A"):
            database.create_table("t", [{"a": 1, "A": 2}])
