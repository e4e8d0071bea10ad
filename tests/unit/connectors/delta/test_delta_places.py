"""Folders of Delta Lake, and conditions as SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from refusals import refusal
from velostream.connectors.delta.constraints import conditions, unpartitionable, violations
from velostream.connectors.delta.merge import quoted
from velostream.connectors.delta.options import DeltaOptions, parse_delta
from velostream.connectors.delta.place import check_place, commit_mark, folder_of
from velostream.connectors.delta.support import check_names
from velostream.model.uri import Uri

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = pa.schema([("Id", pa.int64()), ("v", pa.int32())])


def options(**properties: str) -> DeltaOptions:
    return DeltaOptions.model_validate(properties)


def test_the_address_is_a_folder() -> None:
    assert parse_delta(Uri("delta:///data/orders")) == {"path": "/data/orders"}
    assert folder_of(options(path="/data/orders")).as_posix() == "/data/orders"
    for path, words in (("s3://bucket/t", "folder of this machine"), ("/a%20b", "percent sign")):
        with refusal("sink.config", why=words):
            folder_of(options(path=path))
    with refusal("sink.config", why="needs a path"):
        folder_of(options())


def test_where_a_table_can_be_made(tmp_path: Path) -> None:
    check_place(tmp_path / "new" / "deep", make=True)
    with refusal("sink.missing", tmp_path / "new"):
        check_place(tmp_path / "new", make=False)
    (tmp_path / "file").touch()
    with refusal("sink", why="is a file"):
        check_place(tmp_path / "file", make=True)
    with refusal("sink", why="holds files"):
        check_place(tmp_path, make=True)
    assert not (tmp_path / "new").exists()


def test_a_commit_is_told_from_another_of_its_number(tmp_path: Path) -> None:
    assert commit_mark(tmp_path, 0) is None
    DeltaTable.create(str(tmp_path / "a"), COLUMNS)
    before = commit_mark(tmp_path / "a", 0)
    assert before == commit_mark(tmp_path / "a", 0)
    DeltaTable.create(str(tmp_path / "b"), COLUMNS)
    assert before != commit_mark(tmp_path / "b", 0)


def test_conditions_of_a_table_are_asked_of_rows(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path / "t"), COLUMNS)
    table.alter.add_constraint({"few": 'v < 10 AND "Id" > 0'})
    wanted = conditions(table)
    assert list(wanted) == ['constraint "few"']
    rows = pa.table([[1, 2, None, 4], [1, 11, 3, None]], schema=COLUMNS)
    assert sorted(violations(rows, wanted, tmp_path)) == [1, 2, 3]
    # One that is not understood here is left to the check of the write.
    assert violations(rows, {"other": "no_such_function(v)"}, tmp_path) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_what_a_partition_cannot_hold() -> None:
    rows = pa.table({"p": ["", "a", None], "q": [1, 2, 3]})
    assert list(unpartitionable(rows, ["p", "q"])) == [0]


def test_names_are_quoted() -> None:
    assert quoted('a"b') == '"a""b"'
    with refusal("sink.config", "a b"):
        check_names(pa.schema([("a b", pa.int32())]))
    with pytest.raises(ValueError, match="mode"):
        options(mode="merge")
