"""`velo topic`: list, create, fill, show and delete the topics of a Kafka cluster, without starting Spark."""

from __future__ import annotations

import queue
import sys
import threading
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from velostream.cli.actions import Actions
from velostream.cli.diagnostics import say, whisper
from velostream.cli.invocation import Invocation, common, common_with, pairs
from velostream.cli.output import MOST, Output, counted
from velostream.errors import ConfigError, SourceMissingError, did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TextIO

    import pyarrow as pa

    from velostream.connectors.kafka.client.cluster import Cluster
    from velostream.connectors.kafka.options import KafkaOptions
    from velostream.connectors.kafka.read.browsing import Browser
    from velostream.formats.text_lines import Line

_SCHEME = "kafka://"
_NEWEST = 10
"""How many records `--from end` shows unless it is told."""
_POLL_SECONDS = 0.2
_QUIET_SECONDS = 1.0
"""A pause of the input after which CSV that has come is sent."""
_WAITING = 10_000
"""The most lines that wait to be sent."""


_OTHERS = {
    **dict.fromkeys(("consume", "read", "cat", "tail"), "velo topic show TOPIC shows its records"),
    **dict.fromkeys(("describe", "info"), "velo topic list shows partitions and records of every topic"),
    **dict.fromkeys(("write", "send", "publish"), "velo topic produce TOPIC writes the lines of its input"),
    **dict.fromkeys(("drop", "remove", "rm"), "velo topic delete TOPIC"),
    "ls": "velo topic list",
}


@click.group("topic", cls=Actions, others=_OTHERS)
@click.pass_context
@common
def topic_command(invocation: Invocation, context: click.Context) -> None:
    """List, create, fill, show and delete the topics of a Kafka cluster.

    TOPIC is a name, or an address as in SQL: kafka://broker:9092/orders. The brokers are those of
    --bootstrap, of VELOSTREAM_KAFKA_BROKERS, of the configuration file, or localhost:9092.
    """
    context.obj = invocation


def _reaching(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options by which a cluster is reached."""
    for option in (
        click.option(
            "--with",
            "properties",
            multiple=True,
            metavar="KEY=VALUE",
            help="A property of kafka:// sources, such as security.protocol=SSL.",
        ),
        click.option("--bootstrap", metavar="HOST:PORT", help="The brokers. [localhost:9092]"),
    ):
        function = option(function)
    return function


@topic_command.command("list")
@_reaching
@common
def list_command(invocation: Invocation, bootstrap: str | None, properties: tuple[str, ...]) -> None:
    """List the topics with partitions, replication and records."""
    import pyarrow as pa

    with _cluster(_options(invocation, None, bootstrap, properties)) as cluster:
        sizes = cluster.overview()
    output = Output(invocation.output_format)
    if not sizes and output.form == "table":
        whisper(f"no topics at {cluster.brokers} yet; velo topic create NAME makes one")
        return
    columns = {
        "topic": pa.array([each.name for each in sizes], pa.string()),
        "partitions": pa.array([each.partitions for each in sizes], pa.int32()),
        "replication": pa.array([each.replication for each in sizes], pa.int32()),
        "records": pa.array([each.records for each in sizes], pa.int64()),
    }
    with closing(output):
        output.write(pa.table(columns))


@topic_command.command("create")
@click.argument("topic")
@click.option("--partitions", type=click.IntRange(1), help="How many partitions. [the brokers' default]")
@click.option("--replication", type=click.IntRange(1), help="How many copies. [the brokers' default]")
@click.option(
    "--topic-config",
    "topic_settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the topic, such as retention.ms=60000 or cleanup.policy=compact.",
)
@click.option("--if-not-exists", is_flag=True, help="Leave a topic of this name as it is.")
@_reaching
@common
def create_command(
    invocation: Invocation,
    topic: str,
    partitions: int | None,
    replication: int | None,
    topic_settings: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str | None,
    properties: tuple[str, ...],
) -> None:
    """Create TOPIC."""
    options = _options(invocation, topic, bootstrap, properties)
    settings = pairs(topic_settings, "--topic-config", "retention.ms=60000")
    with _cluster(options) as cluster:
        name = _name(options, cluster)
        there = cluster.topics()
        if name in there:
            told = f'topic "{name}" exists already, with {counted(there[name], "partition")}'
            if not if_not_exists:
                raise ConfigError(told, hint="--if-not-exists accepts that")
            say(told)
            return
        cluster.create(name, partitions or -1, replication or -1, settings)
        made = cluster.describe([name])
    count = f" with {counted(made[name].partitions, 'partition')}" if name in made else ""
    say(f'topic "{name}" created{count}')


@topic_command.command("produce")
@click.argument("topic")
@click.option("--key", metavar="FIELD", help="The field or column whose value is the key of the record.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header for every record.",
)
@_reaching
@common_with(("json", "csv", "text"), "What stdin holds: JSON lines, CSV with a header, or text. [json]")
def produce_command(
    invocation: Invocation,
    topic: str,
    key: str | None,
    headers: tuple[str, ...],
    bootstrap: str | None,
    properties: tuple[str, ...],
) -> None:
    """Write the lines of standard input to TOPIC, a record each.

    JSON objects are written as they are, rows of CSV as JSON objects, and lines of text as they are. Records
    are sent as lines arrive, so that a command may be followed: tail -f app.log | velo topic produce logs
    --format text. Which columns of CSV are numbers is told by the rows that come before the first pause of a
    second, 1,000 at most.
    """
    from velostream.cli.commands.run import stopped_by_signals
    from velostream.connectors.kafka.write.sink import await_topic
    from velostream.connectors.waiting import Waiting
    from velostream.formats.text_lines import READERS

    options = _options(invocation, topic, bootstrap, properties)
    more = [(name, value.encode()) for name, value in pairs(headers, "--header", "source=test").items()]
    with _cluster(options) as cluster:
        name = _name(options, cluster)
        if name not in cluster.topics():
            if not options.topic_create_if_missing and not cluster.creates_topics():
                raise _missing(name, cluster)
            await_topic(options, Waiting(threading.Event(), whisper))
    if sys.stdin.isatty():
        whisper("a record per line; Ctrl-D ends")
    incoming = _Incoming(_utf8(sys.stdin))
    lines = READERS[invocation.format or "json"](incoming, key, incoming.quiet)
    sent = _Sent(options, name, more)
    with stopped_by_signals():
        try:
            sent.all_of(lines)
        finally:
            sent.close()
            say(f'{counted(sent.count, "record")} written to topic "{name}"')


@topic_command.command("show")
@click.argument("topic")
@click.option(
    "--from",
    "start",
    type=click.Choice(["beginning", "end"]),
    default="beginning",
    help="The oldest records, or the newest. [beginning]",
)
@click.option("--limit", type=click.IntRange(0), metavar="N", help="Show no more than N records.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new records, until Ctrl-C.")
@_reaching
@common
def show_command(
    invocation: Invocation,
    topic: str,
    start: str,
    limit: int | None,
    follow: bool,
    bootstrap: str | None,
    properties: tuple[str, ...],
) -> None:
    """Show records of TOPIC: partition, offset, time, key, headers and value.

    Without --follow it ends with the last record that is there. --from end shows the newest records (10
    unless --limit says otherwise), and with --follow only those that are still to come.
    """
    from velostream.connectors.kafka.read.browsing import Browser

    options = _options(invocation, topic, bootstrap, properties)
    output = Output(invocation.output_format)
    with _cluster(options) as cluster, closing(output):
        name = _name(options, cluster)
        found = cluster.topics().get(name)
        if found is None:
            raise _missing(name, cluster)
        with closing(Browser(cluster, name, found)) as browser:
            if follow:
                _follow(browser, output, start, limit)
            else:
                _show(browser, output, start, limit)


@topic_command.command("delete")
@click.argument("topic")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@_reaching
@common
def delete_command(
    invocation: Invocation, topic: str, yes: bool, bootstrap: str | None, properties: tuple[str, ...]
) -> None:
    """Delete TOPIC and its records.

    It asks before; without a terminal, only --yes deletes.
    """
    options = _options(invocation, topic, bootstrap, properties)
    with _cluster(options) as cluster:
        name = _name(options, cluster)
        found = next((each for each in cluster.overview() if each.name == name), None)
        if found is None:
            raise _missing(name, cluster)
        what = f'topic "{name}" with {counted(found.records, "record")}'
        if not yes and not sys.stdin.isatty():
            raise ConfigError(f"{what} is not deleted without being asked for", hint="--yes deletes it")
        if not yes and not click.confirm(f"delete {what}?", err=True):
            say(f'topic "{name}" stays')
            return
        cluster.delete(name)
    say(f"{what} deleted")


# --- showing --------------------------------------------------------------------------------------------


def _show(browser: Browser, output: Output, start: str, limit: int | None) -> None:
    if start == "end":
        _write(output, [browser.last(_NEWEST if limit is None else limit)])
        return
    for_people = limit is None and output.form == "table"
    shown = _write(output, browser.first(MOST if for_people else limit))
    if for_people and shown == MOST:
        whisper(f"the first {MOST:,} records; --limit shows more, --from end the newest")


def _write(output: Output, pages: Iterable[pa.Table]) -> int:
    """Write the rows; in a table for people, as one."""
    import pyarrow as pa

    from velostream.connectors.kafka.read.browsing import SCHEMA

    if output.form == "table":
        rows = pa.concat_tables([SCHEMA.empty_table(), *pages])
        if rows.num_rows:
            output.write(rows)
        else:
            whisper("no records")
        return int(rows.num_rows)
    count = 0
    for page in pages:
        output.write(page)
        count += page.num_rows
    return count


def _follow(browser: Browser, output: Output, start: str, limit: int | None) -> None:
    first, at = browser.bounds()
    at = first if start == "beginning" else at
    whisper("records appear as they come; Ctrl-C ends")
    left = limit
    while left is None or left > 0:
        end = browser.ends()
        for page in browser.between(at, end, None):
            rows = page if left is None else page.slice(0, left)
            output.write_more(rows)
            left = None if left is None else left - rows.num_rows
            if left == 0:
                return
        at = end
        time.sleep(_POLL_SECONDS)


# --- producing ------------------------------------------------------------------------------------------


class _Sent:
    """Sends records, some together, and counts those that the brokers have."""

    def __init__(self, options: KafkaOptions, topic: str, headers: list[tuple[str, bytes]]) -> None:
        from velostream.connectors.kafka.write.producer import Producer

        self._producer = Producer(options, topic, options.max_request_size)
        self._headers: list[tuple[str, bytes | None]] = list(headers)
        self.count = 0

    def all_of(self, lines: Iterator[Line]) -> None:
        """Send every line as it arrives, with those that have arrived meanwhile."""
        for batch in _arrived(lines):
            self.send(batch)

    def send(self, lines: list[Line]) -> None:
        """Send these lines; returns when the brokers have them."""
        from velostream.connectors.kafka.write.encoder import Records

        keys = [None if line.key is None else line.key.encode() for line in lines]
        values: list[bytes | None] = [line.value.encode() for line in lines]
        headers = [self._headers] * len(lines) if self._headers else None
        self._producer.send(Records(keys, values, headers))
        self.count += len(lines)

    def close(self) -> None:
        """Disconnect."""
        self._producer.close()


class _Incoming:
    """Lines as they arrive, read by a thread, so that a pause between them is noticed."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._read: queue.Queue[str | BaseException | None] = queue.Queue(_WAITING)
        self._ahead: list[str | BaseException | None] = []
        threading.Thread(target=self._fill, args=(lines,), name="stdin", daemon=True).start()

    def _fill(self, lines: Iterator[str]) -> None:
        try:
            for line in lines:
                self._read.put(line)
            self._read.put(None)
        except BaseException as exc:
            self._read.put(exc)

    def __iter__(self) -> Iterator[str]:
        while True:
            line = self._ahead.pop() if self._ahead else self._read.get()
            if line is None:
                return
            if isinstance(line, BaseException):
                raise line
            yield line

    def quiet(self) -> bool:
        """Whether no line comes for a second."""
        if not self._ahead:
            try:
                self._ahead.append(self._read.get(timeout=_QUIET_SECONDS))
            except queue.Empty:
                return True
        return False


def _arrived(lines: Iterator[Line]) -> Iterator[list[Line]]:
    """All lines, each time those that have arrived since the last; raises what reading them raised."""
    arrived: queue.Queue[Line | BaseException | None] = queue.Queue(_WAITING)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(None)
        except BaseException as exc:
            arrived.put(exc)

    threading.Thread(target=read, name="lines", daemon=True).start()
    while True:
        batch: list[Line] = []
        found = arrived.get()
        while isinstance(found, tuple):
            batch.append(found)
            if arrived.empty() or len(batch) >= _WAITING:
                break
            found = arrived.get()
        if batch:
            yield batch
        if found is None:
            return
        if isinstance(found, BaseException):
            raise found


def _utf8(stream: TextIO) -> Iterator[str]:
    """The lines of standard input, which is UTF-8 whatever the locale says, as they arrive."""
    for number, line in enumerate(iter(stream.buffer.readline, b""), start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as exc:
            raise ConfigError(f"line {number} of standard input is not UTF-8: {exc.reason}") from exc


# --- reaching -------------------------------------------------------------------------------------------


def _options(
    invocation: Invocation, topic: str | None, bootstrap: str | None, properties: tuple[str, ...]
) -> KafkaOptions:
    """The properties of a topic: from the configuration, its address and the command."""
    from velostream.connectors.kafka.options import KafkaOptions
    from velostream.connectors.properties import build_options, check_reach
    from velostream.connectors.registry import connector_for, said_of
    from velostream.model.uri import Uri

    uri = Uri(topic if topic is not None and _SCHEME in topic else f"{_SCHEME}{topic or 'none'}")
    given = pairs(properties, "--with", "security.protocol=SSL")
    written = given | ({"bootstrap.servers": bootstrap} if bootstrap else {})
    connector = connector_for(uri)
    settings = invocation.settings()
    for name in written:
        if name not in connector.options.property_names():
            raise ConfigError(
                f'--with "{name}" is no property of kafka://',
                hint=did_you_mean(name, connector.options.property_names()),
            )
    said = said_of(connector, uri, written, settings)
    check_reach(connector.options, {**connector.parse(uri), **written}, settings.reach)
    options = build_options(connector.options, said, connector.name)
    assert isinstance(options, KafkaOptions)
    return options


def _name(options: KafkaOptions, cluster: Cluster) -> str:
    from velostream.connectors.kafka.client.topics import Topics

    topics = Topics(options, cluster)
    if len(topics.names) != 1 or topics.pattern:
        raise ConfigError(f'name one topic, not "{options.topic}"')
    return topics.names[0]


@contextmanager
def _cluster(options: KafkaOptions) -> Iterator[Cluster]:
    from velostream.connectors.kafka.client.cluster import Cluster

    with closing(Cluster(options)) as cluster:
        yield cluster


def _missing(name: str, cluster: Cluster) -> SourceMissingError:
    close = nearest(name, cluster.topics())
    guess = f'did you mean "{close}"? ' if close is not None else ""
    return SourceMissingError(
        f'kafka topic "{name}" does not exist', hint=f"{guess}velo topic create {name} makes it"
    )
