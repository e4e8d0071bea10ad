"""A Kafka broker for development and tests: one real broker, in a process of its own, on loopback.

All its files are in one folder: `server.properties`, `data` (topics, offsets, Kafka's own metadata) and
`logs`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING

from velostream.devtools.broker.folder import STOP_SECONDS, running
from velostream.devtools.broker.java_options import class_archive, java_command
from velostream.disk.private import OTHERS, make_folder, open_file
from velostream.errors import ConfigError, DeadlineError, JavaError
from velostream.spark.jars.maven import broker_jars, fetched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from velostream.connectors.kafka.client.cluster import Cluster

HOST = "127.0.0.1"
PORT = 9092
VERSION = "4.2.1"
"""Not 4.3.0 or 4.3.1, which lose committed transactions of a lone broker after a kill.

Such a broker takes partitions whose leader is still away for deleted when it comes back, and leaves committed
transactions without their commit marker. When the next one is aborted, so are they.
"""
START_SECONDS = 90.0
ORDERLY = (0, 128 + signal.SIGTERM)
"""Exit codes of a broker that was asked to stop, or ended by itself without an error."""
STARTED = b"Kafka Server started"
"""The log message with which the broker becomes usable."""
_POLL_SECONDS = 0.02
_HEARD_SECONDS = 0.1
_OWN_PORTS = range(20_000, 32_000)
"""The range of free ports. Higher ones are given to outgoing connections.

With the broker away, a client that keeps connecting to such a port can be assigned it and connect to itself.
"""

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "num.network.threads": "2",
    "num.io.threads": "4",
    # A quarter of the heap by default.
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "5000",
    # Writes to its metadata twice a second while nothing happens, for alarms that nobody has here.
    "metadata.max.idle.interval.ms": "0",
}
"""One node, few partitions of Kafka's internal topics, and nothing that waits for others."""

AFTER_A_KILL = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
"""A killed broker counts as alive for this long, and its successor has to wait: by default 9 s."""

# Java keeps the process id of the shell, whose child watches the pipe: when the process at the other end is
# gone, so is the broker. Both are in a process group of their own, which is what 0 means.
_TIED = 'exec 3<&0; (read -r _ <&3; kill -9 0) & exec "$@" 3<&- </dev/null'


class BrokerProcess:
    """One broker on one folder. It may be stopped or killed, and started again on the same port."""

    def __init__(
        self,
        folder: Path,
        port: int = PORT,
        *,
        settings: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.folder = folder.absolute()
        self.port = port
        self._settings = dict(settings or {})
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._logged = 0
        self._recording: Path | None = None

    @property
    def address(self) -> str:
        """The value for `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """Where the broker writes what happens."""
        return self.folder / "logs" / "broker.log"

    @property
    def pid(self) -> int | None:
        """The process of the broker that this object started, while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self, *, background: bool = False, timeout: float = START_SECONDS) -> None:
        """Start it, and return when clients can use it.

        It ends with this process, however that ends, unless it is in the `background`. Raises ConfigError
        when the port is taken or a broker runs on the folder, JavaError when the broker does not start.
        """
        if self.pid is not None:
            return
        if self._process is not None:
            self._ended()
        holder = running(self.folder)
        if holder is not None:
            raise ConfigError(
                f"a broker already runs on {self.folder}, as process {holder}",
                hint="velo broker stop ends it",
            )
        _check_free(self.port)
        jars = fetched(broker_jars(), f"Kafka {VERSION}", say=self._say)
        self._prepare(jars)
        self._process = self._launch(jars, background)
        try:
            self._await_started(self._process, timeout)
        except BaseException:
            self.kill()
            raise

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """Stop it gracefully; by force when that takes too long. Idempotent."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._ended()

    def kill(self) -> None:
        """End it at once, as kill -9 does."""
        if self._process is not None:
            self._process.kill()
            self._ended()

    def wait(self) -> int:
        """Wait until it ends by itself; returns its exit code."""
        assert self._process is not None
        # Not one long wait: Python raises a Ctrl-C between its own steps, and one that arrives just before
        # such a wait begins is not raised until it is over.
        while (code := self._process.poll()) is None:
            time.sleep(_HEARD_SECONDS)
        self._ended()
        return code

    def _ended(self) -> None:
        assert self._process is not None
        code = self._process.wait()
        if self._recording is not None:
            with contextlib.suppress(OSError):
                if code in ORDERLY:
                    self._recording.replace(self._recording.with_suffix(".jsa"))
                self._recording.unlink(missing_ok=True)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    # --- inside -----------------------------------------------------------------------------------------

    def _prepare(self, jars: tuple[Path, ...]) -> None:
        """The folder, the settings, and what Kafka needs in a new folder."""
        if "," in str(self.folder):
            raise ConfigError(f"Kafka takes no folder with a comma in its name: {self.folder}")
        try:
            # With the folder itself, so that a new data directory is private, too.
            for folder in (
                self.folder.parent,
                self.folder,
                *(self.folder / name for name in ("data", "logs", "tmp")),
            ):
                make_folder(folder)
            controller = free_port()
            settings = {
                **SETTINGS,
                "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{HOST}:{controller}",
                "advertised.listeners": f"PLAINTEXT://{self.address}",
                "controller.quorum.voters": f"1@{HOST}:{controller}",
                "log.dirs": str(self.folder / "data"),
                **(AFTER_A_KILL if self._killed() else {}),
                **self._settings,
            }
            lines = (f"{name}={_escaped(value)}\n" for name, value in settings.items())
            with open_file(self._properties, "w", encoding="utf-8") as file:
                file.writelines(lines)
        except OSError as exc:
            raise ConfigError(
                f"cannot use {self.folder}: {(exc.strerror or str(exc)).lower()}",
                hint="give another place with --data-dir",
            ) from exc
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(jars)

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _killed(self) -> bool:
        """Whether the last broker here did not stop gracefully, of which Kafka leaves a note."""
        data = self.folder / "data"
        return (data / "meta.properties").exists() and not (data / ".kafka_cleanshutdown").exists()

    def _format(self, jars: tuple[Path, ...]) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
        arguments = (
            "format",
            "--ignore-formatted",
            "--cluster-id",
            cluster,
            "--config",
            str(self._properties),
        )
        options, _ = class_archive(jars, None)
        command = java_command(self.folder, jars, *options, "kafka.tools.StorageTool", *arguments)
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, umask=OTHERS
        )
        if done.returncode != 0:
            raise JavaError(
                f"the broker's folder {self.folder} cannot be set up",
                detail="\n".join(_without_trace((done.stdout + done.stderr).splitlines())) or None,
            )

    def _launch(self, jars: tuple[Path, ...], background: bool) -> subprocess.Popen[bytes]:
        options, self._recording = class_archive(jars, None if background else f"{os.getpid()}-{self.port}")
        command = java_command(self.folder, jars, *options, "kafka.Kafka", str(self._properties))
        if not background:
            command = ["/bin/sh", "-c", _TIED, "sh", *command]
        self._logged = self.log.stat().st_size if self.log.exists() else 0
        # A session of its own: Ctrl-C in the terminal is for us; we then stop the broker gracefully.
        with open_file(self.folder / "logs" / "broker.out", "wb") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if background else subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
                umask=OTHERS,
            )

    def _await_started(self, process: subprocess.Popen[bytes], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not self._said_started():
            if process.poll() is not None:
                raise JavaError(
                    "the Kafka broker does not start",
                    detail="\n".join(self._last_words()) or None,
                    hint=f"its log is {self.log}",
                )
            if time.monotonic() > deadline:
                raise DeadlineError(
                    f"the Kafka broker is not up after {timeout:.0f} s", hint=f"its log is {self.log}"
                )
            time.sleep(_POLL_SECONDS)

    def _said_started(self) -> bool:
        try:
            with self.log.open("rb") as file:
                # A log that was rotated meanwhile is read from its beginning.
                file.seek(self._logged if self.log.stat().st_size >= self._logged else 0)
                return STARTED in file.read()
        except FileNotFoundError:
            return False

    def _last_words(self) -> list[str]:
        said: list[str] = []
        for path in (self.log, self.folder / "logs" / "broker.out"):
            with contextlib.suppress(OSError):
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
                said += _without_trace(lines if path.suffix == ".out" else lines[-200:])
        return said


def cluster(address: str) -> Cluster:
    """The cluster at this address; ConfigError at once when the client is not installed."""
    from velostream.connectors.kafka.client.cluster import Cluster, client_package
    from velostream.connectors.kafka.options import KafkaOptions

    client_package()
    return Cluster(KafkaOptions.model_validate({"bootstrap.servers": address}))


def free_port() -> int:
    """A port of loopback on which nobody listens."""
    chance = random.SystemRandom()
    for _ in range(200):
        port = chance.choice(_OWN_PORTS)
        with contextlib.suppress(OSError), socket.create_server((HOST, port)):
            return port
    raise ConfigError(f"no free port on {HOST}")


def _check_free(port: int) -> None:
    try:
        with socket.create_server((HOST, port)):
            return
    except OSError as exc:
        if exc.errno != errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} cannot be used: {(exc.strerror or str(exc)).lower()}",
                hint=f"give another one: --port {PORT}",
            ) from exc
        raise ConfigError(
            f"port {port} of {HOST} is taken",
            hint=f"velo broker status shows whether it is yours; or give another one: --port {port + 1}",
        ) from exc


def _without_trace(lines: list[str]) -> list[str]:
    """The error message without Java's stack."""
    told = [line for line in lines if not line.startswith(("\tat ", "\t... "))]
    serious = [line for line in told if any(word in line for word in (" ERROR ", " FATAL ", "Exception"))]
    return (serious or told)[-3:]


def _escaped(value: str) -> str:
    """A value escaped for a Java properties file."""
    return value.replace("\\", "\\\\")
