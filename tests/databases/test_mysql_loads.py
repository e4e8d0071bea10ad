"""How a table of MySQL and MariaDB is loaded: so that it can be stopped, and ends when the server is dead."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from ways import way_to

from refusals import refusal
from velostream.config import Settings
from velostream.connectors.mysql.read.binlog import protocol
from velostream.engine.opening.connect import open_source
from velostream.model.statements import SourceRef
from velostream.model.uri import Uri

if TYPE_CHECKING:
    from pathlib import Path

    from mysql_shops import MySqlShop
    from tests.conftest import WaitUntil

    from velostream.connectors.base import Source


def opened(
    shop: MySqlShop, folder: Path, port: int | None = None, once: bool = True, **properties: str
) -> Source:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    uri = shop.uri("orders").replace(f":{shop.server.port}/", f":{port or shop.server.port}/")
    return open_source(
        SourceRef("__source_1", Uri(uri), given),
        Settings(data_dir=folder / "data"),
        folder / "spool",
        known=None,
        once=once,
        table=True,
        owner="job",
    )


def ids(source: Source, end: object) -> list[int]:
    assert isinstance(end, dict)
    batches = source.read("changes", None, end["changes"])
    return sorted(number for batch in batches for number in batch["id"].to_pylist())


@pytest.mark.parametrize(
    "properties", [{"cdc": "true"}, {"poll_interval": "1s"}, {}, {"order_by": "id"}], ids=str
)
def test_a_load_can_be_stopped(
    mysql_shop: MySqlShop, tmp_path: Path, wait_until: WaitUntil, properties: dict[str, str]
) -> None:
    """A job that waits for its first rows asks again and again, so that it can end: so does the query."""
    shop = mysql_shop
    given = (
        dict(properties)
        if "cdc" in properties
        else {"where": "EXISTS (SELECT 1 FROM customers)", **properties}
    )
    shop.fill(1, 10)
    source = opened(shop, tmp_path, once=False, **given)
    source.check()
    with shop.server.connect(shop.name) as other:
        other.execute("LOCK TABLES orders WRITE, customers WRITE")
        began = time.monotonic()
        assert source.latest(None) == {"changes": 0}
        assert not source.settled()
        source.close()
        assert time.monotonic() - began < 10
        # Nor does the server go on waiting.
        left = "SELECT count(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE '%%metadata lock%%'"
        wait_until(lambda: other.execute(left, ()) == [(0,)])
        other.execute("UNLOCK TABLES")


@pytest.mark.parametrize("properties", [{"cdc": "true"}, {}, {"order_by": "id"}], ids=str)
def test_a_server_that_falls_silent_while_it_is_read(
    maria_shop: MySqlShop, tmp_path: Path, properties: dict[str, str]
) -> None:
    """Its connections stay open, as those of a machine that is gone do."""
    maria_shop.fill(1, 20000, "n, n % 9, n, REPEAT('x', 500)")
    with way_to(maria_shop.server.port) as way:
        source = opened(maria_shop, tmp_path, way.port, socket_timeout="1s", ssl_mode="disable", **properties)
        source.check()
        way.most_bytes = 1 << 20
        with closing(source), refusal("source.network", why="silent"):
            source.latest(None)


def test_descriptors_may_be_many(
    maria_shop: MySqlShop, tmp_path: Path, wait_until: WaitUntil, many_files: None
) -> None:
    maria_shop.fill(1, 10)
    with closing(opened(maria_shop, tmp_path, once=False, cdc="true")) as source:
        wait_until(lambda: source.latest(None) == {"changes": 10})
        maria_shop.fill(11, 12)
        wait_until(lambda: source.latest(None) == {"changes": 12})


def test_a_long_event_is_not_silence(
    maria_shop: MySqlShop, tmp_path: Path, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes longer to come than a server may be silent, and is not asked for again."""
    monkeypatch.setattr(protocol, "HEARTBEAT_SECONDS", 0.2)
    maria_shop.sql.execute("ALTER TABLE orders MODIFY note longtext")
    maria_shop.fill(1, 2)
    with way_to(maria_shop.server.port) as way:
        source = opened(maria_shop, tmp_path, way.port, once=False, cdc="true", ssl_mode="disable")
        with closing(source):
            wait_until(lambda: source.latest(None) == {"changes": 2})
            way.slow.set()
            began = time.monotonic()
            maria_shop.sql.execute("INSERT INTO orders VALUES (3, 3, 3, REPEAT('x', 3000000))")
            wait_until(lambda: source.latest(None) == {"changes": 3})
            assert time.monotonic() - began > 4 * protocol.HEARTBEAT_SECONDS


_FOLLOWER = """
import sys
from pathlib import Path
from velostream.config import Settings
from velostream.engine.opening.connect import open_source
from velostream.model.statements import SourceRef
from velostream.model.uri import Uri

folder = Path(sys.argv[2])
source = open_source(
    SourceRef("__source_1", Uri(sys.argv[1]), {"cdc": "true"}), Settings(data_dir=folder / "data"),
    folder / "spool", known=None, once=False, table=True, owner="job",
)

def most():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024

have = source.latest(None)
while not source.settled():
    have = source.latest(have)
before = most()
print("loaded", flush=True)
rows = 0
while rows < 1_000_000:
    end = source.latest(have)
    if end != have:
        rows += sum(batch.num_rows for batch in source.read("changes", have["changes"], end["changes"]))
        have = end
source.commit(have)
print(most() - before, rows, flush=True)
source.close()
"""


@pytest.mark.sampled(6)
def test_a_long_transaction_needs_no_memory(maria_shop: MySqlShop, tmp_path: Path) -> None:
    """A million rows, 250 MB of text, in one transaction."""
    command = [sys.executable, "-c", _FOLLOWER, maria_shop.uri("orders"), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "loaded\n"
        maria_shop.fill(1, 1_000_000, "n, n, n, REPEAT('x', 250)")
        grown, rows = map(int, follower.stdout.readline().split())
    assert rows == 1_000_000
    assert grown < 200
