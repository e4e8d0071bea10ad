"""SHOW CONNECTORS tells what each connector really does."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from refusals import refusal
from velostream.config import Settings
from velostream.connectors import Delivery, registry
from velostream.connectors.base import SinkContext
from velostream.connectors.registry import BUILT_IN, connector_for
from velostream.engine.opening.connect import open_sink, open_source
from velostream.errors import VelostreamError
from velostream.model.statements import SourceRef
from velostream.model.uri import Uri
from velostream.runtime.answers.show import connectors
from velostream.testing.contract import COLUMNS

if TYPE_CHECKING:
    from velostream.connectors import Sink

SERVER = "127.0.0.1:1"
ADDRESSES = {
    "az": ("az://bucket/prefix/", {"account": "a", "anonymous": "true"}),
    "clickhouse": (f"clickhouse://{SERVER}/db?table=t", {}),
    "console": ("console://", {}),
    "datagen": ("datagen://trades", {}),
    "delta": ("delta://{folder}/table", {}),
    "file": ("file://{folder}/rows.jsonl", {}),
    "gs": ("gs://bucket/prefix/", {"anonymous": "true"}),
    "http": (f"http://{SERVER}/rows", {}),
    "iceberg": ("iceberg://shop/sales.rows", {"catalog": "sqlite:///{folder}/catalog.db"}),
    "kafka": (f"kafka://{SERVER}/rows", {}),
    "mysql": (f"mysql://{SERVER}/db?table=t", {}),
    "postgres": (f"postgres://{SERVER}/db?table=t", {}),
    "s3": ("s3://bucket/prefix/", {"anonymous": "true", "region": "here"}),
    "sql": ("sql://sqlite:{folder}/shop.db?table=t", {}),
    "stations": ("stations://{folder}", {}),
}
"""An address of each, where nothing has to be: opening does not look."""
NAMES = sorted({*BUILT_IN, "stations"})


def told(name: str) -> dict[str, Any]:
    (line,) = [line for line in connectors().to_pylist() if line["name"] == name]
    return line


def sink(name: str, folder: Path, delivery: str | None = None) -> Sink:
    address, properties = ADDRESSES[name]
    given = {key: value.format(folder=folder) for key, value in properties.items()}
    given |= {"delivery": delivery} if delivery else {}
    context = SinkContext(folder / "state", COLUMNS, key=("id",), job="listing")
    return open_sink(Uri(address.format(folder=folder)), given, Settings(data_dir=folder), context)


def look(name: str, folder: Path) -> None:
    """Open it as a source, and look at what is there."""
    address, properties = ADDRESSES[name]
    given = {key: value.format(folder=folder) for key, value in properties.items()}
    ref = SourceRef("__source_1", Uri(address.format(folder=folder)), given)
    settings = Settings(data_dir=folder)
    source = open_source(ref, settings, folder / "spool", known=None, once=True, table=True)
    source.close()


def test_every_connector_is_listed():
    lines = connectors().to_pylist()
    assert [line["name"] for line in lines] == sorted({*registry.names()})
    assert {line["name"] for line in lines} >= set(BUILT_IN)
    assert set(ADDRESSES) >= set(BUILT_IN)
    for line in lines:
        for scheme in line["schemes"].split(", "):
            assert connector_for(Uri(f"{scheme}://x")).name == line["name"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_read_or_not_written_is_refused(name: str, tmp_path: Path):
    line = told(name)
    assert line["reads"] or line["writes"]
    assert (line["follows"] is not None) == line["reads"]
    assert (line["delivery"] is not None) == line["writes"]
    if line["reads"]:
        look(name, tmp_path)
    else:
        with refusal("sql.unsupported", why="not read"):
            look(name, tmp_path)
    if not line["writes"]:
        with refusal("sql.unsupported", why="not written"):
            sink(name, tmp_path)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("datagen", "sql")])
def test_guarantees_are_those_that_sinks_give(name: str, tmp_path: Path):
    guarantees = told(name)["delivery"].split(", ")
    opened = sink(name, tmp_path)
    assert opened.delivery == guarantees[0]  # Without "delivery" it is the first.
    opened.close()
    opened = sink(name, tmp_path, "at_least_once")
    assert opened.delivery in guarantees
    opened.close()
    if Delivery.EXACTLY_ONCE in guarantees:
        opened = sink(name, tmp_path, "exactly_once")
        assert opened.delivery == Delivery.EXACTLY_ONCE
        opened.close()
    else:
        with refusal("sql.unsupported", "exactly_once"):
            sink(name, tmp_path, "exactly_once")


@pytest.mark.parametrize("name", NAMES)
def test_packages_are_those_that_it_needs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    line = told(name)
    assert line["installed"] is True
    found = registry.by_name(name).connector
    if found.driver is None:
        assert line["package"] is None
        return
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert line["package"] == f"velostream[{name}]"
    assert name in project["optional-dependencies"]
    monkeypatch.setitem(sys.modules, found.driver, None)  # As if it were not installed.
    assert told(name)["installed"] is False
    use = look if line["reads"] else sink
    with pytest.raises(VelostreamError) as caught:
        use(name, tmp_path)
    assert caught.value.code == "config"
    assert line["package"] in (caught.value.hint or "")
