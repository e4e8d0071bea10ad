"""`velo broker`: a real Kafka broker for development, with nothing to install."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from velostream.cli.commands.run import stopped_by_signals
from velostream.cli.diagnostics import say, whisper
from velostream.cli.invocation import Invocation, common
from velostream.cli.output import counted
from velostream.errors import ConfigError, JavaError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from velostream.connectors.kafka.client.cluster import Cluster
    from velostream.devtools.broker.process import BrokerProcess

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


@click.command("broker")
@click.argument("action", type=click.Choice(["start", "stop", "wipe", "status"]), default="start")
@click.option("--port", type=click.IntRange(1, 65535), help="Where it listens on 127.0.0.1. [9092]")
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME[:PARTITIONS]", help="Make this topic unless it exists."
)
@click.option("--background", is_flag=True, help="Return when it is up; `velo broker stop` ends it.")
@common
def broker_command(
    invocation: Invocation, action: str, port: int | None, topics: tuple[str, ...], background: bool
) -> int:
    """Run a Kafka broker on this machine, for development.

    It is a real broker, fetched from Maven the first time, reachable from this machine only. `start`, or no
    word at all, runs it until Ctrl-C, or with --background until `stop`. Its topics stay in the folder
    "broker" of the data directory until `wipe` deletes them. `status` shows what runs there, and exits with
    1 when nothing does.
    """
    folder = invocation.settings().data_dir.absolute() / "broker"
    if action == "start":
        wanted = dict(_topic(text) for text in topics)
        return _start(folder, port, wanted, background, option=_option(invocation))
    if port is not None or topics or background:
        raise ConfigError(f"velo broker {action} takes none of --port, --topic and --background")
    if action == "status":
        return _status(folder, as_json=invocation.output_format == "json")
    from velostream.devtools.broker.folder import stop, wipe

    if action == "stop":
        process = stop(folder)
        say(f"stopped process {process}" if process is not None else f"no broker runs on {folder}")
    else:
        say(f"deleted {folder}" if wipe(folder) else f"nothing to delete: {folder} does not exist")
    return 0


def _topic(text: str) -> tuple[str, int]:
    name, colon, count = text.partition(":")
    if not _NAME.fullmatch(name) or name in (".", "..") or (colon and not (count.isdigit() and int(count))):
        raise ConfigError(
            f'--topic "{text}" is not name:partitions',
            hint="write --topic orders:2; names have letters, digits, dots, dashes and underscores",
        )
    return name, int(count) if colon else 1


def _option(invocation: Invocation) -> str:
    """The options that another command needs to reach the same broker."""
    return f" --data-dir {invocation.data_dir}" if invocation.data_dir else ""


def _start(folder: Path, port: int | None, topics: Mapping[str, int], background: bool, option: str) -> int:
    from velostream.devtools.broker.process import PORT, BrokerProcess, cluster

    process = BrokerProcess(folder, port or PORT, say=whisper)
    brokers = cluster(process.address) if topics else None
    with stopped_by_signals():
        try:
            process.start(background=background)
            if brokers is not None:
                _make(brokers, topics)
            _tell(process, background, option, topic=next(iter(topics), None))
            return 0 if background else _watch(process)
        except BaseException as exc:
            interrupted = isinstance(exc, KeyboardInterrupt)
            if interrupted and not background:
                say("\nstopping…" if sys.stderr.isatty() else "stopping…")
            process.stop()
            raise


def _watch(process: BrokerProcess) -> int:
    """Wait until it ends: by Ctrl-C, which is raised here, by `velo broker stop`, or by itself."""
    from velostream.devtools.broker.process import ORDERLY

    code = process.wait()
    if code not in ORDERLY:
        raise JavaError(f"the broker ended with code {code}", hint=f"its log is {process.log}")
    say("stopped")
    return 0


def _make(brokers: Cluster, topics: Mapping[str, int]) -> None:
    there = brokers.topics()
    for name, partitions in topics.items():
        if name not in there:
            brokers.create(name, partitions, 1)
            whisper(f'made topic "{name}" with {counted(partitions, "partition")}')
        elif there[name] != partitions:
            say(f'topic "{name}" is there, with {counted(there[name], "partition")}')
    brokers.close()


def _tell(process: BrokerProcess, background: bool, option: str, topic: str | None) -> None:
    from velostream.devtools.broker.process import PORT, VERSION

    how = f"velo broker stop{option} ends it" if background else "Ctrl-C stops it"
    say(f"Kafka {VERSION} listens on {process.address}; {how}")
    whisper(f"topics are kept in {process.folder}; velo broker wipe{option} deletes them")
    name = topic or "topic"
    where = name if process.port == PORT else f"{process.address}/{name}"
    whisper(f"statements read a topic as kafka://{where}; to see it at work: velo demo --kafka")


def _status(folder: Path, *, as_json: bool) -> int:
    from velostream.devtools.broker.folder import port_of, running
    from velostream.devtools.broker.process import HOST

    process, port = running(folder), port_of(folder)
    found: dict[str, Any] = {"running": process is not None, "process": process}
    found |= {"address": f"{HOST}:{port}" if process is not None else None, "folder": str(folder)}
    if as_json:
        click.echo(json.dumps(found))
    elif process is not None:
        click.echo(f"running on {found['address']}, process {process}, folder {folder}")
    else:
        click.echo(f"no broker runs on {folder}")
    return 0 if process is not None else 1
