"""A COMMIT whose answer is lost, and which the server has not even read when it is asked what was written."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

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

    from mysql_shops import MySqlShop
    from tests.conftest import WaitUntil

    from velostream.connectors.base import Sink


@pytest.mark.parametrize("earlier", [0, 1])
def test_a_commit_on_its_way_is_waited_for(
    mysql_shop: MySqlShop, tmp_path: Path, wait_until: WaitUntil, earlier: int
) -> None:
    shop = mysql_shop
    shop.sql.execute("CREATE TABLE target (id bigint, name text)")

    def opened(port: int) -> Sink:
        uri = shop.uri("target").replace(f":{shop.server.port}/", f":{port}/")
        context = SinkContext(tmp_path / "state", COLUMNS, job="job")
        return open_sink(Uri(uri), {"ssl.mode": "disable"}, Settings(data_dir=tmp_path / "data"), context)

    def waits() -> bool:
        # InnoDB shows what it saw before to whoever asks again within a tenth of a second.
        shop.sql.execute("DO SLEEP(0.2)")
        return bool(
            shop.rows("SELECT 1 FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'").total()
        )

    with way_to(shop.server.port) as way:
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
            again = opened(shop.server.port)
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
