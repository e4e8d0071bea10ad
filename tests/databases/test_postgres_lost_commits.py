"""A COMMIT whose answer is lost, and which the server has not even read when it is asked what was written."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from ways import way_to

from refusals import refusal
from velostream.config import Settings
from velostream.connectors.base import SinkContext
from velostream.engine.opening.connect import open_sink
from velostream.model.uri import Uri
from velostream.testing.contract import COLUMNS
from velostream.testing.contract.sinks import batch

if TYPE_CHECKING:
    from pathlib import Path

    from shops import Shop
    from tests.conftest import WaitUntil

    from velostream.connectors.base import Sink


@pytest.mark.parametrize("earlier", [0, 1])
def test_a_commit_on_its_way_is_waited_for(
    shop: Shop, tmp_path: Path, wait_until: WaitUntil, earlier: int
) -> None:
    shop.sql.execute("CREATE TABLE target (id bigint, name text)")

    def opened(port: int) -> Sink:
        uri = shop.uri("target").replace(f":{shop.postgres.port}/", f":{port}/")
        context = SinkContext(tmp_path / "state", COLUMNS, job="job")
        return open_sink(Uri(uri), {"ssl.mode": "disable"}, Settings(data_dir=tmp_path / "data"), context)

    def waits() -> bool:
        return bool(shop.rows("SELECT 1 FROM pg_locks WHERE NOT granted"))

    with way_to(shop.postgres.port) as way:
        sink = opened(way.port)
        sink.recover(None)
        recorded = None
        for step in range(earlier):
            sink.intend(step, batch([(0, "before")]))
            recorded = sink.write(step, batch([(0, "before")]))
        intended = sink.intend(earlier, batch([(1, "a")]))
        assert intended is not None
        way.holds_commits.set()
        with refusal("sink.network"):
            sink.write(earlier, batch([(1, "a")]))
        sink.close()
        found: list[bool] = []

        def settle() -> None:
            again = opened(shop.postgres.port)
            again.recover(recorded)
            found.append(again.settle(intended))
            again.close()

        asking = threading.Thread(target=settle)
        asking.start()
        wait_until(lambda: waits() or not asking.is_alive())
        way.delivered.set()
        asking.join()
    assert found == [True]
    assert shop.rows("SELECT id FROM target WHERE id = 1") == Counter([(1,)])


def test_an_unusable_index_is_not_used(shop: Shop, tmp_path: Path) -> None:
    """Of an index that is checked late, or that has more columns, only what is unique counts."""
    shop.sql.execute("CREATE TABLE late (id bigint UNIQUE DEFERRABLE, name text)")
    shop.sql.execute("CREATE TABLE wide (id bigint, name text, PRIMARY KEY (id) INCLUDE (name))")
    shop.sql.execute("CREATE TABLE mixed (id bigint, name text, UNIQUE (name) INCLUDE (id))")
    for table in ("late", "wide", "mixed"):
        context = SinkContext(tmp_path / table, COLUMNS, ("id",), unique=True, job="job")
        sink = open_sink(Uri(shop.uri(table)), {}, Settings(data_dir=tmp_path / "data"), context)
        sink.recover(None)
        for step, name in enumerate(("first", "second")):
            rows = batch([(1, name), (2, f"{name} too")])
            sink.intend(step, rows)
            sink.write(step, rows)
        sink.close()
        assert shop.rows(f"SELECT * FROM {table}") == Counter([(1, "second"), (2, "second too")]), table


def test_text_that_ends_a_copy(shop: Shop, tmp_path: Path) -> None:
    texts = ["a\n\\.\nb", "\\.", "\\.\n", "\\N", "", None, "a\r\nb", '"', "\t,", "\\", "é\n\\."]
    shop.sql.execute("CREATE TABLE texts (id bigint, name text)")
    shop.sql.execute("CREATE TABLE alone (name text)")
    context = SinkContext(tmp_path / "texts", COLUMNS, job="job")
    sink = open_sink(Uri(shop.uri("texts")), {}, Settings(data_dir=tmp_path / "data"), context)
    sink.recover(None)
    rows = batch(list(enumerate(texts)))
    sink.intend(0, rows)
    sink.write(0, rows)
    sink.close()
    assert shop.rows("SELECT * FROM texts") == Counter(enumerate(texts))
    context = SinkContext(tmp_path / "alone", pa.schema([COLUMNS.field("name")]), job="job")
    sink = open_sink(Uri(shop.uri("alone")), {}, Settings(data_dir=tmp_path / "data"), context)
    sink.recover(None)
    only = rows.select(["name"])
    sink.intend(0, only)
    sink.write(0, only)
    sink.close()
    assert shop.rows("SELECT * FROM alone") == Counter((text,) for text in texts)
