from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pytest

from refusals import refusal
from velostream.config import Settings, cache_home, load, parse_size
from velostream.connectors.kafka.options import KafkaOptions
from velostream.connectors.properties import build_options
from velostream.connectors.registry import by_name, said_of
from velostream.errors import ConfigError
from velostream.model.uri import Uri


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and none of our variables in the environment."""
    import os

    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("VELOSTREAM_"):
            monkeypatch.delenv(name)
    return tmp_path


def write(text: str, path: str = "velostream.toml") -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_defaults_need_no_file():
    settings = load()
    assert settings.data_dir == Path(".velostream")
    assert settings.master is None
    assert settings.conf == {}
    assert settings.memory_total > 0


def test_flag_wins_over_environment_over_file_over_default(monkeypatch: pytest.MonkeyPatch):
    write('master = "local[2]"\nlog_level = "debug"\nmetrics_port = 1\n')
    monkeypatch.setenv("VELOSTREAM_MASTER", "local[3]")
    monkeypatch.setenv("VELOSTREAM_METRICS_PORT", "2")
    settings = load(metrics_port=3, master=None)
    assert (settings.log_level, settings.master, settings.metrics_port) == ("debug", "local[3]", 3)


def test_spark_settings_merge_key_by_key():
    write("[conf]\nspark.a = 1\nspark.b.c = true\n")
    assert load(conf={"spark.a": "2"}).conf == {"spark.a": "2", "spark.b.c": "true"}


def test_dotted_keys_and_tables_are_the_same_property():
    write('[kafka]\nbootstrap.servers = "b:9092"\n"group.id" = "g"\n[kafka.topic.retry]\nmultiplier = 2\n')
    assert load().properties("kafka") == {
        "bootstrap.servers": "b:9092",
        "group.id": "g",
        "topic.retry.multiplier": "2",
    }


def test_a_connector_inherits_defaults_and_the_environment_wins(monkeypatch: pytest.MonkeyPatch):
    write('[defaults]\non.error = "fail"\n[kafka]\nbootstrap.servers = "file:1"\n')
    monkeypatch.setenv("VELOSTREAM_KAFKA_BROKERS", "env:2")
    monkeypatch.setenv("VELOSTREAM_RETRY_INTERVAL_SECS", "7")
    settings = load()
    assert settings.properties("file") == {"on.error": "fail"}
    assert settings.properties("kafka") == {"on.error": "fail"}
    kafka = by_name("kafka")
    options = build_options(kafka.options, said_of(kafka, Uri("kafka://orders"), {}, settings), "kafka")
    assert isinstance(options, KafkaOptions)
    assert (options.bootstrap_servers, options.topic_retry_interval) == ("env:2", timedelta(seconds=7))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("VELOSTREAM_RETRY_STRATEGY", "often"),
        ("VELOSTREAM_RETRY_INTERVAL_SECS", "soon"),
        ("VELOSTREAM_RETRY_MULTIPLIER", "0.5"),
        ("VELOSTREAM_RETRY_MAX_DELAY_SECS", "-1"),
        ("VELOSTREAM_DEFAULT_PARTITIONS", "0"),
        ("VELOSTREAM_DEFAULT_REPLICATION_FACTOR", "many"),
    ],
)
def test_a_variable_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str):
    monkeypatch.setenv(variable, value)
    kafka = by_name("kafka")
    with pytest.raises(ConfigError, match=f'environment variable {variable} cannot be "{value}"'):
        build_options(kafka.options, said_of(kafka, Uri("kafka://orders"), {}, load()), "kafka")


@pytest.mark.parametrize("name", ["ALLOWED", "CONF", "CONNECTIONS", "DEFAULTS"])
def test_a_variable_that_is_no_json_is_named(monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setenv(f"VELOSTREAM_{name}", "{")
    with pytest.raises(ConfigError, match=f"VELOSTREAM_{name} cannot be read: it is not JSON"):
        load()


def test_named_connections():
    write('[connections.warehouse]\nhost = "db1"\nport = 5433\nssl.mode = "require"\n')
    assert load().connections == {"warehouse": {"host": "db1", "port": "5433", "ssl.mode": "require"}}


def test_a_path_in_a_file_starts_at_the_file():
    file = write('data_dir = "data"\n', "etc/app.toml")
    assert load(file).data_dir == Path("etc/data")
    assert load(file, data_dir=Path("here")).data_dir == Path("here")


def test_the_file_can_be_named_in_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VELOSTREAM_CONFIG", str(write('master = "yarn"\n', "other.toml")))
    assert load().master == "yarn"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('mastr = "local"\n', 'velostream.toml: unknown key "mastr"', 'did you mean "master"?'),
        ("[kafak]\na = 1\n", 'velostream.toml: unknown table "[kafak]"', 'did you mean "kafka"?'),
        (
            "[connectors]\na = 1\n",
            'velostream.toml: unknown table "[connectors]"',
            'did you mean "connections"?',
        ),
        ("metrics_port = 99999\n", 'velostream.toml: "metrics_port": Input should be less than', None),
        ('memory_total = "lots"\n', '"memory_total": "lots" is not a size; write it like 512MB or 2GB', None),
        ("master = [\n", 'configuration file "velostream.toml" is not valid TOML', None),
    ],
)
def test_what_a_file_gets_wrong_is_named(text: str, message: str, hint: str | None):
    write(text)
    with pytest.raises(ConfigError) as caught:
        load()
    assert message in caught.value.message
    assert caught.value.hint == hint
    assert caught.value.exit_code == 2


def test_a_missing_file_is_an_error_when_it_was_asked_for():
    with refusal("config", "nowhere.toml"):
        load("nowhere.toml")


def test_errors_name_the_flag_or_the_variable(monkeypatch: pytest.MonkeyPatch):
    with refusal("config", "--metrics-port"):
        load(metrics_port=-1)
    monkeypatch.setenv("VELOSTREAM_LOG_LEVEL", "loud")
    with refusal("config", "VELOSTREAM_LOG_LEVEL"):
        load()


def test_a_misspelt_variable_is_refused_and_a_foreign_one_is_not(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VELOSTREAM_MY_APP_TOKEN", "x")
    load()
    monkeypatch.setenv("VELOSTREAM_DATADIR", "x")
    with pytest.raises(ConfigError) as caught:
        load()
    assert caught.value.hint == 'did you mean "VELOSTREAM_DATA_DIR"?'


def test_an_unknown_flag_is_refused():
    with refusal("config", "mastr"):
        load(mastr="local")


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MB", 512 << 20), ("2g", 2 << 30), ("1.5 GiB", 3 << 29), ("10", 10), ("1TB", 1 << 40)],
)
def test_sizes(text: str, size: int):
    assert parse_size(text) == size
    assert load(memory_per_table=text).memory_per_table == size


def test_settings_do_not_change():
    with pytest.raises(ValueError, match="frozen"):
        load().master = "x"  # type: ignore[misc]


def test_the_cache_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_home() == tmp_path / "velostream"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_home() == Path.home() / ".cache" / "velostream"


def test_every_setting_is_described():
    assert all(field.description for field in Settings.model_fields.values())


def test_settings_load_without_spark():
    import subprocess

    code = "import sys, velostream.config as c; c.load(); sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
