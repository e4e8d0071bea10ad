"""A Kafka broker for development and tests: one real broker, in a process of its own, on loopback.

All that it keeps is in one folder: `server.properties`, `data` (topics, offsets, Kafka's own metadata) and
`logs`. Who runs it is asked of the lock that Kafka itself holds there, so a kill leaves nothing stale.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING

from velostream.errors import ConfigError, DeadlineError, JavaError
from velostream.runtime.jars import broker_jars, fetched
from velostream.runtime.java import find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from velostream.connectors.kafka.cluster import Cluster

HOST = "127.0.0.1"
PORT = 9092
VERSION = "4.3.1"
START_SECONDS = 90.0
STOP_SECONDS = 30.0
STARTED = b"Kafka Server started"
"""What the broker logs once clients can use it."""
_POLL_SECONDS = 0.02
_OWN_PORTS = range(20_000, 32_000)
"""Where free ports are looked for. Higher ones are given to connections: with the broker away, a client that
keeps trying to connect to such a port can be given it and connect to itself."""

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
"""One node, few partitions of Kafka's own topics, and nothing that waits for others."""

JAVA_OPTIONS = ("-Xms64m", "-Xmx512m", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true")

# Java keeps the process id of the shell, whose child watches the pipe: when whoever holds the other end is
# gone without a word, the broker goes too.
_TIED = 'exec 3<&0; (read -r _ <&3 || kill -9 $$) & exec "$@" 3<&- </dev/null'


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

    @property
    def address(self) -> str:
        """What `bootstrap.servers` has to be."""
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
        when the port is taken or a broker runs on the folder, JavaError when the broker does not come up.
        """
        if self.pid is not None:
            return
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
        """End it in order; by force when that takes too long. Safe to call twice."""
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

    def wait(self, timeout: float | None = None) -> int:
        """Until it ends by itself; its exit code."""
        assert self._process is not None
        code = self._process.wait(timeout)
        self._ended()
        return code

    def _ended(self) -> None:
        assert self._process is not None
        self._process.wait()
        if self._process.stdin is not None:
            # A word tells the watcher that there is nothing to end; the process id may be another's by now.
            with contextlib.suppress(OSError):
                self._process.stdin.write(b"ended\n")
                self._process.stdin.flush()
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process = None

    # --- inside -----------------------------------------------------------------------------------------

    def _prepare(self, jars: tuple[Path, ...]) -> None:
        """The folder, the settings, and what Kafka wants to find in a new folder."""
        if "," in str(self.folder):
            raise ConfigError(f"Kafka takes no folder with a comma in its name: {self.folder}")
        try:
            for folder in (self.folder, *(self.folder / name for name in ("data", "logs", "tmp"))):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            controller = free_port()
            settings = {
                **SETTINGS,
                "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{HOST}:{controller}",
                "advertised.listeners": f"PLAINTEXT://{self.address}",
                "controller.quorum.voters": f"1@{HOST}:{controller}",
                "log.dirs": str(self.folder / "data"),
                **self._settings,
            }
            lines = (f"{name}={_escaped(value)}\n" for name, value in settings.items())
            self._properties.write_text("".join(lines), encoding="utf-8")
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

    def _format(self, jars: tuple[Path, ...]) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
        arguments = [
            "format",
            "--cluster-id",
            cluster,
            "--config",
            str(self._properties),
            "--ignore-formatted",
        ]
        command = self._java(jars, "-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool", *arguments)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise JavaError(
                f"the broker's folder {self.folder} cannot be set up",
                detail="\n".join(_without_trace((done.stdout + done.stderr).splitlines())) or None,
            )

    def _java(self, jars: tuple[Path, ...], *arguments: str) -> list[str]:
        java = find_java()
        config = Path(__file__).with_name("broker_log4j2.properties").as_uri()
        return [
            str(java.java),
            *java.options,
            *JAVA_OPTIONS,
            f"-Dlog4j2.configurationFile={config}",
            f"-Dvelostream.logs={self.folder / 'logs'}",
            f"-Djava.io.tmpdir={self.folder / 'tmp'}",
            "-cp",
            os.pathsep.join(map(str, (*_logging_jars(), *jars))),
            *arguments,
        ]

    def _launch(self, jars: tuple[Path, ...], background: bool) -> subprocess.Popen[bytes]:
        command = self._java(jars, "kafka.Kafka", str(self._properties))
        if not background:
            command = ["/bin/sh", "-c", _TIED, "sh", *command]
        self._logged = self.log.stat().st_size if self.log.exists() else 0
        # A session of its own: Ctrl-C in the terminal is for us, who then stop the broker in order.
        with (self.folder / "logs" / "broker.out").open("wb") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if background else subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
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
                # A log that was rotated meanwhile begins anew.
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


def running(folder: Path) -> int | None:
    """The process of the broker that holds this folder, None when there is none."""
    try:
        with (folder / "data" / ".lock").open("r+b") as file:
            return _lock_holder(file.fileno())
    except FileNotFoundError:
        return None


def port_of(folder: Path) -> int | None:
    """Where the broker of this folder listens, or last did."""
    with contextlib.suppress(OSError, ValueError):
        for line in (folder / "server.properties").read_text(encoding="utf-8").splitlines():
            if line.startswith("advertised.listeners="):
                return int(line.rpartition(":")[2])
    return None


def stop(folder: Path, timeout: float = STOP_SECONDS) -> int | None:
    """End the broker of this folder, whoever started it; its process, None when there was none."""
    process = running(folder)
    if process is None:
        return None
    deadline = time.monotonic() + timeout
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)
        while running(folder) == process:
            if time.monotonic() > deadline:
                os.kill(process, signal.SIGKILL)
                deadline = time.monotonic() + timeout
            time.sleep(_POLL_SECONDS)
    return process


def wipe(folder: Path) -> bool:
    """Delete all that a broker kept; False when there was nothing. ConfigError while it runs."""
    process = running(folder)
    if process is not None:
        raise ConfigError(
            f"the broker of {folder} runs, as process {process}", hint="velo broker stop ends it"
        )
    if not folder.exists():
        return False
    shutil.rmtree(folder)
    return True


def cluster(address: str) -> Cluster:
    """Questions to the broker at this address."""
    from velostream.connectors.kafka.cluster import Cluster
    from velostream.connectors.kafka.options import KafkaOptions

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
            hint=f"velo broker status tells whether it is yours; or give another one: --port {port + 1}",
        ) from exc


def _lock_holder(descriptor: int) -> int | None:
    """Who holds a lock as Java takes it."""
    if sys.platform == "darwin":
        form, question = "qqihh", (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
    else:
        form, question = "hhqqi4x", (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    answer = struct.unpack(form, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(form, *question)))
    kind, process = (answer[3], answer[2]) if sys.platform == "darwin" else (answer[0], answer[4])
    return None if kind == fcntl.F_UNLCK else process


def _logging_jars() -> list[Path]:
    """What writes the log, which Kafka expects to find: Spark's."""
    from velostream.runtime.gateway import SPARK_HOME

    names = ("slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl")
    return [next((SPARK_HOME / "jars").glob(f"{name}-[0-9]*.jar")) for name in names]


def _without_trace(lines: list[str]) -> list[str]:
    """What went wrong, without where in Java it did."""
    told = [line for line in lines if not line.startswith(("\tat ", "\t... "))]
    serious = [line for line in told if any(word in line for word in (" ERROR ", " FATAL ", "Exception"))]
    return (serious or told)[-3:]


def _escaped(value: str) -> str:
    """A value of a Java properties file."""
    return value.replace("\\", "\\\\")
