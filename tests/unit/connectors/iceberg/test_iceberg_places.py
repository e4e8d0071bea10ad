"""Names of catalogues and tables of Iceberg, partitions, and where a catalogue may lead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from refusals import refusal
from velostream.connectors.iceberg.catalog import check_reach, identifier, open_catalog
from velostream.connectors.iceberg.options import IcebergOptions, parse_iceberg
from velostream.connectors.iceberg.partitions import check_partition_types, partitions
from velostream.connectors.iceberg.rewriting import filled
from velostream.model.reach import Reach
from velostream.model.uri import Uri


def options(**properties: str) -> IcebergOptions:
    return IcebergOptions.model_validate({"table": "ns.t", **properties})


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("iceberg:///lake/shop.orders", {"path": "/lake", "table": "shop.orders"}),
        ("iceberg:///a/b/c/shop.eu.orders", {"path": "/a/b/c", "table": "shop.eu.orders"}),
        ("iceberg:///shop.orders", {"path": "/", "table": "shop.orders"}),
        ("iceberg://lake/shop.orders", {"connection": "lake", "table": "shop.orders"}),
        ("iceberg://lake/ns.t?warehouse=w", {"connection": "lake", "table": "ns.t", "warehouse": "w"}),
    ],
)
def test_the_address_names_a_catalogue_and_a_table(uri: str, found: dict[str, str]) -> None:
    assert parse_iceberg(Uri(uri)) == found


def test_a_table_is_in_a_namespace() -> None:
    assert identifier(options(table="shop.eu.orders")) == ("shop", "eu", "orders")
    for name in ("orders", ".", ""):
        with refusal("sink.config", why="names no table"):
            identifier(options(table=name))
    with refusal("sink.config", "lake", why="needs a catalogue"):
        open_catalog(options(connection="lake"), make=True)
    with pytest.raises(ValueError, match="two catalogues"):
        options(path="/lake", uri="http://h")


def test_a_warehouse_is_made_only_when_asked(tmp_path: Path) -> None:
    for path, words in ((f"{tmp_path}/a?b", "character"), (f"{tmp_path}/new", "catalog.db")):
        with refusal("sink.config" if "?" in path else "sink.missing", why=words):
            open_catalog(options(path=path), make=False)
    assert not (tmp_path / "new").exists()
    open_catalog(options(path=f"{tmp_path}/new"), make=True).close()
    assert (tmp_path / "new" / "catalog.db").exists()


def test_partitions_are_columns_and_what_is_computed_of_them() -> None:
    found = partitions("region, year(at), bucket(16, id), truncate( 4 , name)")
    assert [(column, str(how)) for column, how in found] == [
        ("region", "identity"),
        ("at", "year"),
        ("id", "bucket[16]"),
        ("name", "truncate[4]"),
    ]
    for text in ("week(at)", "bucket(id)", "day(1, at)", "day(at"):
        with refusal("sink.config", text):
            partitions(text)
    schema = pa.schema([("d", pa.float64()), ("s", pa.struct([("x", pa.int32())]))])
    for column in ("d", "s", "nowhere"):
        with refusal("sink.config", column):
            check_partition_types(schema, [column])


def test_a_catalogue_leads_only_where_statements_may_reach(tmp_path: Path) -> None:
    given: dict[str, Any] = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    catalog = SqlCatalog("default", **given)
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", pa.schema([("id", pa.int64())]))
    nowhere = Reach(roots=(Path("/nowhere"),), hosts=())
    check_reach(options(path=f"{tmp_path}/w"), catalog, table, nowhere)
    check_reach(options(uri="http://asked"), catalog, table, Reach())
    with refusal("sql.unsafe", why="outside"):
        check_reach(options(path=f"{tmp_path}/other"), catalog, table, nowhere)
    with refusal("sql.unsafe"):
        check_reach(options(uri="http://asked"), catalog, table, nowhere)
    catalog.close()


def test_columns_that_are_not_written_are_those_of_the_replaced_row() -> None:
    nan = float("nan")
    added = pa.table({"k": [nan, 2.0, 3.0], "v": [1, 2, 3], "w": pa.nulls(3, pa.large_string())})
    found = pa.table({"k": [3.0, nan], "v": [0, 0], "w": ["c", "n"]})
    assert filled(added, found, ["k"], ["k", "v"])["w"].to_pylist() == ["n", None, "c"]
    assert filled(added, found.slice(0, 0), ["k"], ["k", "v"]) is added
