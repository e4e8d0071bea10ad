from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.request import urlopen

from refusals import refusal
from velostream.config import load
from velostream.runtime.database import Database
from velostream.runtime.metrics import serve

if TYPE_CHECKING:
    from pathlib import Path


def test_figures_are_served_on_loopback(tmp_path: Path) -> None:
    with Database(load(None, data_dir=tmp_path)) as database:
        database.sql("CREATE TABLE p (id INT PRIMARY KEY); INSERT INTO p VALUES (1), (2)")
        address = serve(database, 0)
        assert address.startswith("http://127.0.0.1:")
        with urlopen(address) as answer:
            text = answer.read().decode()
    assert 'velostream_table_rows{table="p"} 2.0' in text
    assert 'velostream_table_version{table="p"} 1.0' in text
    assert 'velostream_table_healthy{table="p"} 1.0' in text
    assert "# TYPE velostream_job_records_in_total counter" in text


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        Database(load(None, data_dir=tmp_path)) as database,
        refusal("config", why="metrics"),
    ):
        serve(database, taken.getsockname()[1])
