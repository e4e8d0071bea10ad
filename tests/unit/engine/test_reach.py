"""`allowed.roots` and `allowed.hosts` bound what statements may reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from refusals import refusal
from velostream.config import Settings, load
from velostream.connectors.base import SinkContext, Source
from velostream.connectors.registry import default_registry
from velostream.engine.opening.connect import open_sink, open_source
from velostream.errors import UnsafeError
from velostream.location import SourceText
from velostream.model.reach import Reach
from velostream.model.statements import SelectStatement
from velostream.model.uri import Uri
from velostream.sql import EmptyCatalog, check_script

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """A folder that may be reached, with a link that leads out of it."""
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.csv").write_text("a\n1\n")
    (folder / "x.csv").write_text("a\n1\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "y.csv").write_text("a\n1\n")
    (folder / "link.csv").symlink_to(tmp_path / "outside" / "x.csv")
    (folder / "own.csv").symlink_to(folder / "x.csv")
    (folder / "away").symlink_to(tmp_path / "outside")
    return folder


@pytest.fixture
def settings(inside: Path, tmp_path: Path) -> Settings:
    return load(
        None, data_dir=tmp_path / "data", allowed={"roots": [inside], "hosts": ["*.internal", "h:9092"]}
    )


def opened(text: str, settings: Settings, tmp_path: Path) -> Source:
    checked = check_script(SourceText(text), EmptyCatalog(), default_registry(), environment={})
    assert not checked.errors, checked.errors
    (statement,) = checked.statements
    assert isinstance(statement, SelectStatement)
    (ref,) = statement.query.sources
    return open_source(ref, settings, tmp_path / "spool", known=None, once=False, table=True)


@pytest.mark.parametrize(
    "path", ["x.csv", "own.csv", "sub/../x.csv", "sub/*.csv", "sub/", "**/y.csv", "{x,own}.csv"]
)
def test_files_of_a_root_are_read(path: str, inside: Path, settings: Settings, tmp_path: Path):
    source = opened(f"SELECT * FROM 'file://{inside}/{path}'", settings, tmp_path)
    source.check()
    assert source.discover().names == ["a"]


@pytest.mark.parametrize(
    "path",
    [
        "../outside/x.csv",
        "sub/../../outside/x.csv",
        "../outside/*.csv",
        "../*/x.csv",
        "*/../../outside/x.csv",
        "link.csv",
        "away/x.csv",
        "away/missing.csv",
        "away/*.csv",
        "*.csv",
        "**/*.csv",
        "./",
        "../missing/",
    ],
)
def test_what_leads_out_of_the_roots_is_refused(path: str, inside: Path, settings: Settings, tmp_path: Path):
    with refusal("sql.unsafe", why="folders") as refused:
        opened(f"SELECT * FROM 'file://{inside}/{path}'", settings, tmp_path).check()
    assert str(inside) in (refused.value.hint or "")
    assert "does not exist" not in str(refused.value), "nobody is told what is there"


def test_a_link_that_comes_later_is_refused_when_it_comes(inside: Path, settings: Settings, tmp_path: Path):
    source = opened(f"SELECT * FROM 'file://{inside}/sub/*.csv'", settings, tmp_path)
    source.check()
    (inside / "sub" / "z.csv").symlink_to(tmp_path / "outside" / "x.csv")
    with refusal("sql.unsafe", why="which leads to"):
        source.latest(None)


def test_relative_paths_start_at_the_working_directory(
    inside: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(inside)
    opened("SELECT * FROM file('x.csv')", settings, tmp_path).check()
    monkeypatch.chdir(tmp_path / "outside")
    with pytest.raises(UnsafeError):
        opened("SELECT * FROM file('x.csv')", settings, tmp_path).check()


@pytest.mark.parametrize(
    "path", ["../outside/out.csv", "away/out.jsonl", "*/../../outside/out.csv", "link.csv"]
)
def test_files_are_written_into_roots_alone(path: str, inside: Path, settings: Settings, tmp_path: Path):
    context = SinkContext(state=tmp_path / "state", schema=pa.schema([("a", pa.int64())]))
    open_sink(Uri(f"file://{inside}/out.csv"), {}, settings, context).close()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnsafeError):
        open_sink(Uri(f"file://{inside}/{path}"), {}, settings, context)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "properties",
    [
        "'sasl.password' = '${file:/etc/hostname}', 'sasl.username' = 'u', 'sasl.mechanism' = 'PLAIN'",
        "'schema.file' = '/etc/hostname', 'format' = 'avro'",
        "'ssl.ca.location' = '/etc/hostname'",
        "'ssl.certificate.location' = '/etc/hostname'",
        "'ssl.key.location' = '/etc/hostname'",
        "'ssl.truststore.location' = '/etc/hostname'",
        "'ssl.keystore.location' = '/etc/hostname'",
    ],
)
def test_files_that_properties_name_are_bounded_too(properties: str, settings: Settings, tmp_path: Path):
    with refusal("sql.unsafe", "/etc/hostname"):
        opened(f"SELECT * FROM kafka://h:9092/t WITH ({properties})", settings, tmp_path)


@pytest.mark.parametrize(
    "source",
    [
        "kafka://elsewhere:9092/t",
        "kafka://h:9093/t",
        "kafka://t WITH ('bootstrap.servers' = 'a.internal:1,elsewhere:9092')",
        "kafka://h:9092/t WITH ('schema.registry.url' = 'https://u:p@elsewhere/x', 'format' = 'avro')",
    ],
)
def test_hosts_are_bounded(source: str, settings: Settings, tmp_path: Path):
    with refusal("sql.unsafe", why="hosts") as refused:
        opened(f"SELECT * FROM {source}", settings, tmp_path)
    assert "*.internal, h:9092" in (refused.value.hint or "")


def test_addresses():
    reach = Reach(hosts=("broker", "*.internal:9092", "::1"))
    for good in ("broker", "broker:1", "BROKER:2", "a.internal:9092", "http://u:p@broker/x", "[::1]:9092"):
        reach.check_addresses(good)
    for bad in ("a.internal:1", "brokers", "broker,other", "http://other/?x=broker", "http://broker@other/"):
        with pytest.raises(UnsafeError):
            reach.check_addresses(bad)


def test_what_the_configuration_names_is_the_operators_choice(inside: Path, tmp_path: Path):
    config = tmp_path / "velostream.toml"
    config.write_text(
        'data_dir = "data"\nallowed.roots = ["inside"]\nallowed.hosts = []\n[kafka]\n'
        '"ssl.ca.location" = "/etc/hostname"\n"bootstrap.servers" = "broker:9092"\n'
    )
    settings = load(config)
    assert settings.reach == Reach((inside,), ())
    with refusal("sql.unsafe", "other:1"):
        opened("SELECT * FROM kafka://other:1/t", settings, tmp_path)


def test_without_bounds_everything_is_reached(inside: Path, tmp_path: Path):
    settings = load(None, data_dir=tmp_path / "data")
    assert settings.reach == Reach()
    opened(f"SELECT * FROM 'file://{inside}/../outside/*.csv'", settings, tmp_path).check()


def test_no_root_at_all_allows_nothing(inside: Path, tmp_path: Path):
    settings = load(None, data_dir=tmp_path / "data", allowed={"roots": []})
    with pytest.raises(UnsafeError) as refused:
        opened(f"SELECT * FROM 'file://{inside}/x.csv'", settings, tmp_path)
    assert refused.value.hint == "allowed.roots has no folder"


def test_a_misspelt_bound_is_refused(tmp_path: Path):
    config = tmp_path / "velostream.toml"
    config.write_text('allowed.root = ["/data"]\n')
    with refusal("config", "allowed.root"):
        load(config)
