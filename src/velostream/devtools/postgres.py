"""A PostgreSQL server for development: on a private port and folder, by the programs that are installed."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from velostream.devtools.broker.process import free_port
from velostream.errors import ConfigError, DeadlineError

_PLACES = (
    "usr/lib/postgresql/*/bin/postgres",
    "usr/pgsql-*/bin/postgres",
    "usr/local/pgsql/bin/postgres",
    "opt/homebrew/opt/postgresql*/bin/postgres",
)
_START_SECONDS = 60.0
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "fsync": "off",
    "max_replication_slots": "60",
    "max_wal_senders": "60",
    "max_connections": "200",
    "log_min_messages": "warning",
    "wal_sender_timeout": "10s",
}
"""fsync is off: nothing that such a server holds has to outlive the machine."""


def programs() -> Path | None:
    """The folder with the newest PostgreSQL that is installed; None where there is none."""
    found = [path for place in _PLACES for path in Path("/").glob(place)]
    return max(found, key=lambda path: path.parts).parent if found else None


class PostgresServer:
    """One server. `make`, then `start` and `stop` as often as needed, then `remove`."""

    user = "postgres"

    def __init__(self, password: str | None = None, **settings: str) -> None:
        found = programs()
        if found is None:
            raise ConfigError(
                "no PostgreSQL server is installed here", hint="apt-get install postgresql, or the like"
            )
        self.bin = found
        self.password = password or secrets.token_hex(12)
        # Not below a folder that only root may enter: the server runs as another user then.
        self.folder = Path(tempfile.mkdtemp(prefix="velostream-postgres-"))
        self.data = self.folder / "data"
        self.port = free_port()
        self.settings = {**_SETTINGS, "port": str(self.port), **settings}
        self._process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """Make its folder. The server refuses to run as root, so then it runs as the user of the package."""
        password = self.folder / "password"
        password.write_text(f"{self.password}\n")
        if os.getuid() == 0:
            for path in (self.folder, password):
                shutil.chown(path, "postgres", "postgres")
        how = ["-U", self.user, "-A", "scram-sha-256", "--no-sync", f"--pwfile={password}"]
        self._run("initdb", "-D", str(self.data), *how, "-E", "UTF8", "--locale=C.UTF-8")

    def start(self) -> None:
        """Start it. After a crash it refuses for as long as a process of before has not ended."""
        told = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        command = self._as_user([str(self.bin / "postgres"), "-D", str(self.data), *told])
        deadline = time.monotonic() + _START_SECONDS
        while True:
            if self._process is None or self._process.poll() is not None:
                with (self.folder / "log").open("ab") as out:
                    self._process = subprocess.Popen(
                        command, stdout=out, stderr=out, cwd="/", start_new_session=True
                    )
            if self.answers():
                return
            if time.monotonic() > deadline:
                raise DeadlineError(
                    "PostgreSQL did not start", detail=(self.folder / "log").read_text()[-2000:]
                )
            time.sleep(0.05)

    def answers(self) -> bool:
        """Whether it takes connections."""
        ready = [str(self.bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def stop(self, how: int = signal.SIGINT) -> None:
        """SIGINT ends all sessions; SIGKILL is a crash."""
        if self._process is None:
            return
        if how == signal.SIGKILL:
            # Of all its processes, at once: otherwise the others would end in order.
            subprocess.run(["pkill", "-9", "-s", str(os.getsid(self._process.pid))], check=False)
        self._process.send_signal(how)
        self._process.wait(60)
        self._process = None

    def remove(self) -> None:
        """Remove its files; it was stopped."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def psql(self, statement: str, database: str = "postgres") -> None:
        """Run a statement, by `psql`."""
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", self.user, "-d", database]
        done = subprocess.run(
            [str(self.bin / "psql"), "-q", "-X", "-v", "ON_ERROR_STOP=1", *where, "-c", statement],
            env={**os.environ, "PGPASSWORD": self.password},
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            raise ConfigError(f"psql failed: {done.stderr.decode().strip()}")

    def _as_user(self, command: list[str]) -> list[str]:
        if os.getuid() != 0:
            return command
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]

    def _run(self, program: str, *arguments: str) -> None:
        command = self._as_user([str(self.bin / program), *arguments])
        done = subprocess.run(command, capture_output=True, cwd="/", check=False)
        if done.returncode != 0:
            raise ConfigError(f"{program} failed: {done.stderr.decode().strip()}")
