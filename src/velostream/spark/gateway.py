"""The JVM that Spark runs in: started by us, without output, and stopped with us."""

from __future__ import annotations

import logging
import os
import resource
import shlex
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velostream.disk.private import OTHERS, open_file
from velostream.errors import JavaError
from velostream.secrets import secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from velostream.spark.java import JavaHome


def _pyspark_folder() -> Path:
    """The folder of pyspark, without importing it, which takes a third of a second."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise JavaError("pyspark is not installed", hint="pip install velostream")
    return Path(spec.submodule_search_locations[0])


SPARK_HOME = _pyspark_folder()
START_TIMEOUT = 120.0
STOP_TIMEOUT = 15.0
_FILES_OF_SPARK = 1024
_CALL_CONNECTION_SECONDS = 30
"""py4j's default; its client for pinned threads ignores it."""

MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.invoke=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.cs=ALL-UNNAMED",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    "--add-opens=java.base/sun.util.calendar=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""The options of Spark's launcher, without the incubator module that only MLlib would use."""


@dataclass(frozen=True)
class Jvm:
    """A running Java process with Spark's gateway in it, not yet a session."""

    gateway: Any
    process: subprocess.Popen[bytes]

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Stop the process: gracefully, and after `timeout` seconds by force. Idempotent."""
        self.gateway.shutdown()
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def class_path(extra: Sequence[Path] = ()) -> str:
    """The driver's class path: `extra` first, then Spark's jars, always in the same order.

    A class-data archive is valid only for the class path that it was made with. MLlib is left out: it
    registers functions by Scala reflection in every session, which is a third of the time to start one.
    """
    # slf4j's interface comes first, as in Spark's launcher: two jars contain one.
    jars = sorted(
        (jar for jar in (SPARK_HOME / "jars").glob("*.jar") if not jar.name.startswith("spark-mllib_")),
        key=lambda jar: (not jar.name.startswith("slf4j-api"), jar),
    )
    conf = [Path(folder)] if (folder := os.environ.get("SPARK_CONF_DIR")) else []
    return os.pathsep.join(str(path) for path in (*extra, *conf, *jars))


def local_command(java: JavaHome, conf: Mapping[str, str], extra_jars: Sequence[Path]) -> list[str]:
    """The command that Spark's own scripts would build, without the shell and the JVM they need for it.

    Those cost 0.4 s of every start on two cores.
    """
    jars = [Path(jar) for jar in conf.get("spark.driver.extraClassPath", "").split(os.pathsep) if jar]
    return [
        str(java.java),
        "-cp",
        class_path([*extra_jars, *jars]),
        f"-Xmx{conf['spark.driver.memory']}",
        *java.options,
        *shlex.split(conf.get("spark.driver.extraJavaOptions", "")),
        *MODULE_OPTIONS,
        *_submit(conf),
    ]


def cluster_command(conf: Mapping[str, str]) -> list[str]:
    """The command with Spark's own script, which reads the user's spark-env.sh and cluster settings."""
    return [str(spark_home() / "bin" / "spark-submit"), *_submit(conf)[1:]]


def spark_home() -> Path:
    """The user's Spark installation if one is configured, else the one inside pyspark."""
    return Path(os.environ.get("SPARK_HOME") or SPARK_HOME)


def _submit(conf: Mapping[str, str]) -> list[str]:
    arguments = ["org.apache.spark.deploy.SparkSubmit"]
    for key, value in conf.items():
        if secret(key):
            continue  # every user of the machine can see a command; see `launch`
        arguments += ["--conf", f"{key}={value}"]
    return [*arguments, "pyspark-shell"]


def _with_secrets(command: Sequence[str], conf: Mapping[str, str], file: Path) -> list[str]:
    """The command with secret settings moved to a file that only its owner can read."""
    secrets = {key: value for key, value in conf.items() if secret(key)}
    if not secrets:
        return list(command)
    with open_file(file, "x", encoding="utf-8") as out:
        out.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in secrets.items())
    *arguments, resource = command
    return [*arguments, "--load-spark-defaults", "--properties-file", str(file), resource]


def _escaped(text: str) -> str:
    """A key or value escaped for a Java properties file."""
    codes = (code for (code,) in struct.iter_unpack(">H", text.encode("utf-16-be")))
    return "".join(chr(code) if code < 128 and chr(code).isalnum() else f"\\u{code:04x}" for code in codes)


def launch(
    command: Sequence[str],
    conf: Mapping[str, str],
    environment: Mapping[str, str],
    output: Path,
    scratch: Path,
) -> Jvm:
    """Start the JVM and connect to it; `conf` has the secret settings that the command leaves out.

    Its output goes to the file `output`; leftovers of a kill are in the folder `scratch`. It runs in a
    session of its own, so that Ctrl-C reaches only Python, and ends by itself when this process does (its
    standard input closes). Raises JavaError with the end of its output when it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="spark-", dir=scratch) as folder:
        handshake = Path(folder) / "gateway"
        env = {**os.environ, **environment}
        env |= {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(handshake)}
        env.setdefault("PYTHONHASHSEED", "0")
        whole = _with_secrets(command, conf, Path(folder) / "secrets.properties")
        with open_file(output, "wb") as sink:
            process = subprocess.Popen(
                whole,
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=sink,
                env=env,
                start_new_session=True,
                umask=OTHERS,
            )
        try:
            _import_pyspark()
            port, token = _await_handshake(process, handshake, output)
            return Jvm(_connect(port, token), process)
        except BaseException:
            process.kill()
            process.wait()
            raise


def _import_pyspark() -> None:
    """Import pyspark, and all that its first call imports, on this core while Java starts on another."""
    import pyspark.sql
    import pyspark.testing.utils  # noqa: F401


def _await_handshake(process: subprocess.Popen[bytes], handshake: Path, output: Path) -> tuple[int, str]:
    deadline = time.monotonic() + START_TIMEOUT
    while not handshake.is_file():
        if process.poll() is not None or time.monotonic() > deadline:
            tail = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-12:]
            _refuse_few_files()
            raise JavaError(
                "Spark does not start",
                detail="\n".join(tail) or None,
                hint=f"all of its output is in {output}; velo doctor checks the machine",
            )
        time.sleep(0.01)
    content = handshake.read_bytes()
    port, length = struct.unpack(">ii", content[:8])
    return port, content[8 : 8 + length].decode()


def _refuse_few_files() -> None:
    """Raise when Spark could not start because of the limit on open files: it has some 300 jars alone."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 <= most < _FILES_OF_SPARK:
        raise JavaError(
            f"Spark does not start: this process may open {most} files, and Spark needs more",
            hint="ulimit -n 4096 in the shell that starts it",
        )


def _connect(port: int, token: str) -> Any:
    """Let pyspark attach to the running gateway, so that its imports and threads are set up."""
    from pyspark.java_gateway import launch_gateway

    keys = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": token}
    os.environ.update(keys)
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for key in keys:
            del os.environ[key]
    _take_calls(gateway, token)
    return gateway


def _take_calls(gateway: Any, token: str) -> None:
    """Listen for calls from Java, and accept them only with the gateway's token.

    pyspark would listen without one when the first streaming query starts, and any user of the machine could
    call methods of our objects. When py4j tells Java our port, Java forgets the token that it must send: so
    it is given a client that has it.
    """
    from py4j.java_gateway import JavaObject
    from pyspark.java_gateway import ensure_callback_server_started

    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)  # noqa: SLF001
    inner, without = server.getGateway(), server.getCallbackClient()
    jvm = gateway.jvm
    seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
    sockets = jvm.javax.net.SocketFactory.getDefault()
    client = jvm.py4j.PythonClient(
        inner,
        None,
        without.getPort(),
        without.getAddress(),
        _CALL_CONNECTION_SECONDS,
        seconds,
        sockets,
        server,
        True,
        0,
        token,
    )
    field = inner.getClass().getDeclaredField("cbClient")
    field.setAccessible(True)
    field.set(inner, client)


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Keep the caller's Ctrl-C handler, which pyspark replaces when a context is created."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler if handler is not None else signal.SIG_DFL)


def _not_from_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def quieten() -> None:
    """Keep py4j and pyspark from logging to the screen; errors reach the caller as exceptions.

    py4j logs an interrupted call on the root logger, hence the filter there; pyspark reports each failed
    query to two loggers with handlers of their own.
    """
    from pyspark.logger import PySparkLogger

    nothing = logging.CRITICAL + 1
    logging.getLogger("py4j").setLevel(nothing)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(nothing)
    root = logging.getLogger()
    if _not_from_py4j not in root.filters:
        root.addFilter(_not_from_py4j)


def session_active() -> bool:
    """Whether this process has a Spark session, ours or another's."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None  # noqa: SLF001


def forget() -> None:
    """Make pyspark start from scratch: it keeps the JVM of a stopped session, whose options are not ours.

    There is no public way to do it.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    if gateway is not None:
        gateway.shutdown()


class CallFromJava:
    """The connection on which Java called this thread: py4j keeps it, and the thread, for ever."""

    def __init__(self, spark: SparkSession) -> None:
        gateway = spark.sparkContext._gateway  # noqa: SLF001
        client = gateway._gateway_client if gateway is not None else None  # noqa: SLF001
        self._connection = client.get_thread_connection() if client is not None else None

    def hang_up(self) -> None:
        """Close the connection and end the thread that waits on it; for when Java will not call any more."""
        if self._connection is not None:
            with suppress(OSError, AttributeError):
                self._connection.socket.shutdown(socket.SHUT_RDWR)
