"""Which connectors there are, what they take, and that asking costs little."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pydantic import Field

from refusals import refusal
from velostream.connectors import registry
from velostream.connectors.base import Connector, SinkContext, Source, SourceContext
from velostream.connectors.capabilities import SparkReader
from velostream.connectors.properties import build_options, resolve_secrets
from velostream.connectors.registry import BUILT_IN, ConnectorWarning, Registry
from velostream.errors import UnknownNameError
from velostream.model.options import Options
from velostream.model.uri import Uri
from velostream.secrets import redact_statement, redact_uri

if TYPE_CHECKING:
    from collections.abc import Iterator


def options(name: str, **properties: str) -> Options:
    given = {key.replace("__", "."): value for key, value in properties.items()}
    return build_options(registry.by_name(name).options, given, name)


def test_loading_all_of_them_is_quick_and_needs_no_driver():
    script = (
        "import sys, time, pydantic, importlib.metadata\n"
        "begin = time.process_time()\n"
        "sum(n * n for n in range(2_000_000))\n"
        "a_while = time.process_time() - begin\n"
        "begin = time.process_time()\n"
        "from velostream.connectors import registry\n"
        "registry.property_reference()\n"
        "print((time.process_time() - begin) / a_while)\n"
        "print(*[m for m in sys.modules if m.split('.')[0] in "
        "('pyspark', 'pyarrow', 'fastavro', 'numpy', 'duckdb', 'orjson')])\n"
    )
    whiles = []
    for _ in range(3):
        out = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout
        number, _, modules = out.partition("\n")
        assert not modules.strip()
        whiles.append(float(number))
    # Beside two million multiplications, which take about as long, however busy the machine is.
    assert min(whiles) < 3


def test_built_in_connectors_work_without_entry_points(monkeypatch):
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    assert set(Registry().names()) == set(BUILT_IN)


def test_a_connector_that_cannot_be_loaded_matters_where_it_is_used(monkeypatch):
    lost = EntryPoint("lost", "gone.module:Connector", registry.GROUP)
    replaced = EntryPoint("file", "gone.module:Files", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [lost, replaced])
    own = Registry()
    with pytest.warns(ConnectorWarning, match="gone") as told:
        assert own.by_scheme("FILE").name == "file"
    assert len(told) == 2
    assert own.by_scheme("unheard_of") is None
    for use in (own.by_scheme, own.by_name):
        with refusal("config", "lost", "gone.module", why="No module named 'gone'"):
            use("lost")


def test_entry_points_and_the_built_in_list_agree():
    from importlib.metadata import entry_points

    found = {point.name: point.value for point in entry_points(group=registry.GROUP)}
    assert {name: found.get(name) for name in BUILT_IN} == dict(BUILT_IN)


def test_every_property_is_described():
    lines = registry.property_reference()
    assert not [line for line in lines if not line.description]
    assert len({(line.connector, line.name) for line in lines}) == len(lines)
    by_name = {(line.connector, line.name): line for line in lines}
    assert by_name["file", "file.poll.interval"][2:4] == ("duration", "100ms")
    assert by_name["kafka", "auto.offset.reset"].type == "earliest | latest"
    assert by_name["postgres", "cdc"][2:4] == ("true | false", "false")


def test_every_property_that_the_specification_names_exists():
    spec = """
    kafka: bootstrap.servers topic auto.offset.reset starting.offsets starting.timestamp isolation.level
      group.id batch.size format key.format schema.file schema.registry.url changelog topic.wait.timeout
      topic.retry.interval topic.retry.strategy topic.retry.multiplier topic.retry.max.delay
      topic.create.if.missing topic.partitions topic.replication
    file: format header delimiter quote null buffer.size watch file.poll.interval file.debounce
      file.wait.timeout file.retry.interval file.create.empty
    postgres: driver host port database username password ssl.mode ssl.root.cert ssl.cert ssl.key
      connect.timeout socket.timeout pool.size connection.pool.size pool.max.idle pool.validation.query
      table query schema where order.by limit query.params poll.interval incremental.column poll.query
      cdc cdc.format cdc.start
      cdc.start.position initial.load slot.name publication.name binlog.file binlog.position on.gap batch.size
      fetch.size prefetch.count parallel.readers query.timeout transaction.isolation
    http: poll.interval method headers body auth records rate.limit webhook
    s3: region endpoint poll.interval events
    """
    for block in re.findall(r"(\w+): ((?:(?!\w+: )[\s\S])*)", spec):
        names = registry.by_name(block[0]).options.property_names()
        assert not set(block[1].split()) - set(names), block[0]


@pytest.mark.parametrize(
    ("uri", "properties"),
    [
        ("kafka://orders", {"topic": "orders"}),
        ("kafka://host:9092/orders", {"bootstrap.servers": "host:9092", "topic": "orders"}),
        ("kafka://a:1,b:2/orders", {"bootstrap.servers": "a:1,b:2", "topic": "orders"}),
        ("kafka://a,b", {"topic": "a,b"}),
        ("kafka://orders?format=avro", {"topic": "orders", "format": "avro"}),
        ("file:///data/x.csv", {"path": "/data/x.csv"}),
        ("file:///logs/app-*.{csv,json}", {"path": "/logs/app-*.{csv,json}"}),
        ("file:///logs/a?.csv", {"path": "/logs/a?.csv"}),
        ("file:///logs/?header=false", {"path": "/logs/", "header": "false"}),
        ("file://x.csv", {"path": "x.csv"}),
        ("postgres://crm/users", {"connection": "crm", "table": "users"}),
        ("postgres://h/db?table=t", {"host": "h", "database": "db", "table": "t"}),
        (
            "postgresql://u:p@h:5432/db?schema=public&table=users",
            {
                "username": "u",
                "password": "p",
                "host": "h",
                "port": "5432",
                "database": "db",
                "schema": "public",
                "table": "users",
            },
        ),
        (
            "postgresql://host/db?query=\"SELECT * FROM users WHERE status='active'\"",
            {"host": "host", "database": "db", "query": "SELECT * FROM users WHERE status='active'"},
        ),
        (
            "mysql://host/db?table=orders&where=\"status='active'\"",
            {"host": "host", "database": "db", "table": "orders", "where": "status='active'"},
        ),
        (
            "clickhouse://analytics:8123/events?table=user_events",
            {"host": "analytics", "port": "8123", "database": "events", "table": "user_events"},
        ),
        (
            'sql://driver:connection_string?query="custom_query"',
            {"driver": "driver", "connection": "connection_string", "query": "custom_query"},
        ),
        ("https://h/p?a=1", {"url": "https://h/p?a=1"}),
        ("s3://bucket/prefix/*.{csv,json}", {"bucket": "bucket", "path": "prefix/*.{csv,json}"}),
        ("datagen://trades?rows_per_second=100", {"generator": "trades", "rows_per_second": "100"}),
        ("console://", {}),
        ("delta:///lake/t", {"path": "/lake/t"}),
    ],
)
def test_uri_forms(uri, properties):
    parsed = Uri(uri)
    found = registry.by_scheme(parsed.scheme)
    assert dict(found.parse(parsed)) == properties
    build_options(found.options, properties, found.name)


def test_functions_name_sources():
    assert registry.by_function("KAFKA_TOPIC").uri_of("orders") == Uri("kafka://orders")
    assert registry.by_function("file").uri_of("/data/x.csv") == Uri("file:///data/x.csv")
    assert registry.by_function("nothing") is None
    assert registry.by_scheme("nothing") is None


def test_unknown_names_say_the_nearest():
    with refusal("sql.unknown_name", "file.debonce", "file") as caught:
        options("file", file__debonce="1s")
    assert caught.value.hint == 'did you mean "file.debounce"?'
    with pytest.raises(UnknownNameError) as caught:
        registry.by_name("kafak")
    assert caught.value.hint == 'did you mean "kafka"?'


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("postgres", {"table": "t", "query": "q"}, '"table" and "query" exclude each other'),
        ("postgres", {"cdc": "true", "query": "q"}, '"cdc" follows a table'),
        ("mysql", {"cdc": "true", "table": "t", "limit": "5"}, '"cdc" cannot be used with "limit"'),
        (
            "file",
            {"file__debounce": "soon"},
            'property "file.debounce" cannot be "soon": "soon" is not a duration',
        ),
        ("file", {"format": "xml"}, 'property "format" cannot be "xml": input should be'),
        ("kafka", {"batch__size": "0"}, 'property "batch.size" cannot be "0"'),
        (
            "kafka",
            {"sasl__jaas__config": "com.evil.Module required;"},
            'cannot be "***": only the login modules',
        ),
        ("mysql", {"binlog__position": "soon"}, "binlog.position"),
        ("datagen", {"rows": "-1"}, "rows"),
    ],
)
def test_values_that_do_not_fit(name, given, message):
    with refusal("sql.property", why=message):
        options(name, **given)


def test_offset_reset_takes_any_case_and_warns_of_others(caplog):
    assert options("kafka", auto__offset__reset="LATEST").auto_offset_reset == "latest"
    with caplog.at_level(logging.WARNING):
        assert options("kafka", auto__offset__reset="middle").auto_offset_reset == "earliest"
    assert "middle" in caplog.text
    assert options("kafka").auto_offset_reset is None


def test_environment_gives_defaults(monkeypatch):
    monkeypatch.setenv("VELOSTREAM_KAFKA_BROKERS", "broker:1")
    monkeypatch.setenv("VELOSTREAM_RETRY_INTERVAL_SECS", "7")
    monkeypatch.setenv("VELOSTREAM_DEFAULT_PARTITIONS", "12")
    found = options("kafka")
    assert (found.bootstrap_servers, found.topic_partitions) == ("broker:1", 12)
    assert found.topic_retry_interval.total_seconds() == 7
    assert options("kafka", bootstrap__servers="other:2").bootstrap_servers == "other:2"


@pytest.mark.parametrize("name", ["delta", "console"])
def test_what_is_only_written_is_not_read(name, tmp_path):
    found = registry.by_name(name)
    assert found.writes
    assert not found.reads
    uri = Uri(f"{found.connector.schemes[0]}:///x/y")
    with refusal("sql.unsupported", f"{uri.scheme}://", why="not read"):
        found.connector.source(uri, options(name), SourceContext(spool=tmp_path))


def test_what_is_only_read_is_not_written(tmp_path):
    found = registry.by_name("datagen")
    assert found.reads
    assert not found.writes
    context = SinkContext(state=tmp_path, schema=pa.schema([("id", pa.int64())]))
    with refusal("sql.unsupported", "datagen://", why="not written"):
        found.connector.sink(Uri("datagen://trades"), options("datagen"), context)


def test_secrets_are_resolved_and_hidden(monkeypatch, tmp_path):
    monkeypatch.setenv("DB_PASSWORD", "s3cret")
    (tmp_path / "token").write_text("t0ken\n")
    assert resolve_secrets("x${env:DB_PASSWORD}y") == "xs3crety"
    assert resolve_secrets(f"${{file:{tmp_path / 'token'}}}") == "t0ken"
    assert options("postgres", table="t", password="${env:DB_PASSWORD}").password == "s3cret"
    with refusal("config", "NOT_THERE"):
        resolve_secrets("${env:NOT_THERE}")
    with refusal("config", tmp_path / "none"):
        resolve_secrets(f"${{file:{tmp_path / 'none'}}}")
    properties = {
        "password": "s3cret",
        "sasl.password": "${env:DB_PASSWORD}",
        "ssl.key.password": "s3cret",
        "secret.access.key": "s3cret",
        "session.token": "s3cret''s3cret",
        "sasl.oauthbearer.token.endpoint.url": "https://login",
        "topic": "orders",
        "key": "id",
        "sink": "postgresql://u:s3cret@h/db?password=s3cret&table=t",
    }
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    shown = redact_statement(
        f"CREATE SOURCE s FROM kafka://x WITH ({pairs}, \"headers\"=\"{{'Authorization': 's3cret'}}\")"
    )
    assert "s3cret" not in shown
    for name in ("sasl.password", "topic", "key", "sasl.oauthbearer.token.endpoint.url"):
        assert f"'{name}' = '{properties[name]}'" in shown
    assert "'password' = '***'" in shown
    assert "postgresql://u:***@h/db?password=***&table=t" in shown
    assert (
        redact_uri("postgresql://u:s3cret@h/db?password='s3cret'&table=t")
        == "postgresql://u:***@h/db?password=***&table=t"
    )


class CountOptions(Options):
    limit: int = Field(3, description="how many")


class CountSource(Source):
    def __init__(self, limit: int) -> None:
        self._limit = limit

    def discover(self):
        import pyarrow as pa

        return pa.schema([("n", pa.int64())])

    def latest(self, after):
        return {"0": self._limit}

    def read(self, partition, start, end) -> Iterator:
        import pyarrow as pa

        yield pa.record_batch({"n": pa.array(range(start or 0, end))})

    def finished(self, offset):
        return True


class CountConnector(Connector):
    name = "count"
    schemes = ("count",)
    functions = ("count_to",)
    Options = CountOptions

    def source(self, uri, options, context):
        return CountSource(options.limit)


def test_a_connector_of_ones_own_comes_through_the_same_door(tmp_path):
    mine = Registry()
    mine.register(CountConnector)
    uri = Uri("count://?limit=5")
    found = mine.by_scheme(uri.scheme)
    assert mine.by_function("count_to") == found
    given = build_options(found.options, found.parse(uri), found.name)
    source = found.connector.source(uri, given, SourceContext(spool=tmp_path))
    end = source.latest(None)
    assert [b.to_pydict() for b in source.read("0", 2, end["0"])] == [{"n": [2, 3, 4]}]
    assert source.finished(end)
    assert ("count", "limit", "integer", "3", "how many") in mine.property_reference("count")
    assert SparkReader.of(source).frame(None, None, end, None) is None
    with refusal("config", "test_registry.CountSource"):
        mine.register(CountSource)  # type: ignore[arg-type]
    with refusal("sql.unsupported", "count://", why="not written"):
        found.connector.sink(uri, given, None)
