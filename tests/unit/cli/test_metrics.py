from __future__ import annotations

import re
import socket
from pathlib import Path
from urllib.request import urlopen

from refusals import refusal
from velostream.config import load
from velostream.runtime.instance import Instance
from velostream.runtime.metrics import serve

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def test_figures_are_served_on_loopback(tmp_path: Path) -> None:
    with Instance(load(None, data_dir=tmp_path)) as database:
        database.sql("CREATE TABLE p (id INT PRIMARY KEY); INSERT INTO p VALUES (1), (2)")
        address = serve(database, 0)
        assert address.startswith("http://127.0.0.1:")
        with urlopen(address) as answer:
            text = answer.read().decode()
    assert 'velostream_table_rows{table="p"} 2.0' in text
    assert 'velostream_table_version{table="p"} 1.0' in text
    assert 'velostream_table_healthy{table="p"} 1.0' in text
    assert "# TYPE velostream_job_records_in_total counter" in text


def test_the_page_names_what_is_served(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    page = re.findall(r"^\| `(velostream_\w+)` \| ([\w ]+) \|", text, re.MULTILINE)
    with Instance(load(None, data_dir=tmp_path)) as database, urlopen(serve(database, 0)) as answer:
        served = re.findall(r"^# TYPE (\w+) (\w+)$", answer.read().decode(), re.MULTILINE)
    # A set of states is served as a gauge for each state.
    assert {name: kind.replace("set of states", "gauge") for name, kind in page} == dict(served)


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        Instance(load(None, data_dir=tmp_path)) as database,
        refusal("config", why="metrics"),
    ):
        serve(database, taken.getsockname()[1])
