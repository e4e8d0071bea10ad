"""What a user needs to write: nothing may be made where it is there."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from shops import Shop

from refusals import refusal
from velostream.config import Settings
from velostream.connectors.base import SinkContext
from velostream.engine.opening.connect import open_sink
from velostream.model.uri import Uri
from velostream.testing.contract import COLUMNS
from velostream.testing.contract.sinks import batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mysql_shops import MySqlShop


@pytest.fixture
def writer(each_shop: Shop | MySqlShop) -> Iterator[str]:
    """The address of the target for a user who may write to it, and no more."""
    sql, name = each_shop.sql, f"w{each_shop.name}"
    sql.execute("CREATE TABLE target (id bigint PRIMARY KEY, name varchar(20))")
    here = "" if isinstance(each_shop, Shop) else "@'127.0.0.1'"
    if isinstance(each_shop, Shop):
        sql.execute(f"CREATE USER {name} PASSWORD 'secret'")
        sql.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    else:
        sql.execute(f"CREATE USER {name}{here} IDENTIFIED BY 'secret'")
    target = "target" if isinstance(each_shop, Shop) else f"{each_shop.name}.target"
    sql.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {target} TO {name}{here}")
    user = "postgres" if isinstance(each_shop, Shop) else "app"
    yield each_shop.uri("target").replace(f"{user}:", f"{name}:")
    sql.execute(f"DROP OWNED BY {name}" if isinstance(each_shop, Shop) else "SELECT 1")
    sql.execute(f"DROP USER {name}{here}")


def test_the_table_of_steps_is_made_by_whoever_may(
    each_shop: Shop | MySqlShop, writer: str, tmp_path: Path
) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    context = SinkContext(tmp_path / "state", COLUMNS, ("id",), unique=True, job="job")
    with closing(open_sink(Uri(writer), {}, settings, context)) as sink, refusal("sink.auth"):
        sink.recover(None)
    owner = SinkContext(tmp_path / "owner", COLUMNS, ("id",), unique=True, job="job")
    with closing(open_sink(Uri(each_shop.uri("target")), {}, settings, owner)) as sink:
        sink.recover(None)
    to = f"w{each_shop.name}" + ("" if isinstance(each_shop, Shop) else "@'127.0.0.1'")
    steps = "velostream_sinks" if isinstance(each_shop, Shop) else f"{each_shop.name}.velostream_sinks"
    each_shop.sql.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {steps} TO {to}")
    with closing(open_sink(Uri(writer), {}, settings, context)) as sink:
        sink.recover(None)
        sink.intend(0, batch([(1, "a"), (2, "b")]))
        sink.write(0, batch([(1, "a"), (2, "b")]))
    assert each_shop.rows("SELECT id, name FROM target") == Counter([(1, "a"), (2, "b")])
