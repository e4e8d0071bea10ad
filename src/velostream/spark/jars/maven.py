"""Jars from Maven, pinned by checksum: downloaded once, verified, and cached."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from velostream.config import cache_home
from velostream.disk.private import FOLDER, OTHERS, make_folder, open_file
from velostream.errors import JavaError
from velostream.spark.java import JavaHome, find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

IVY_SETTINGS = "VELOSTREAM_IVY_SETTINGS"
FETCH_SECONDS = 120.0
FETCH_SECONDS_PER_JAR = 10.0


@dataclass(frozen=True)
class Jar:
    """A jar from Maven, pinned by checksum."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Its file name in the cache."""
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


JARS = (
    Jar(
        "com.globalmentor",
        "hadoop-bare-naked-local-fs",
        "0.1.0",
        "e0cc30fb0531eb0b59468dc0abf5b257533d2365b5e9f45e795edd707aa78c62",
    ),
)
"""Additions to the driver's class path, besides Spark's jars."""

DELTA_JARS = (
    Jar(
        "io.delta",
        "delta-spark_4.2_2.13",
        "4.4.0",
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar(
        "io.delta",
        "delta-storage",
        "4.4.0",
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
)
"""Delta Lake; downloaded and loaded only for a statement that uses it."""

KAFKA_JARS = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.2",
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.13.1",
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)
"""Spark's connector for Kafka, likewise. Its other dependencies come with Spark."""
JAR_SETS = {"kafka": ("Spark's Kafka connector", KAFKA_JARS)}
"""The jar sets of `SourceTraits.needs`, by name, with a display name."""


@cache
def broker_jars() -> tuple[Jar, ...]:
    """A Kafka broker with its dependencies, from the list beside this file."""
    lines = Path(__file__).with_name("broker_jars.txt").read_text(encoding="ascii").splitlines()
    jars = []
    for line in lines:
        name, pinned = line.split()
        group, artifact, version = name.split(":")
        jars.append(Jar(group, artifact, version, pinned))
    return tuple(jars)


def cached(jars: Sequence[Jar]) -> bool:
    """Whether all of these are in the cache, verified by checksum."""
    return all(digest(cache_home() / "jars" / jar.file_name) == jar.sha256 for jar in jars)


def fetched(
    jars: Sequence[Jar],
    what: str,
    ivy_settings: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[Path, ...]:
    """Indispensable jars, downloaded the first time; JavaError when that fails."""
    home = cache_home()
    if not cached(jars):
        said: list[str] = []
        say(f"fetching {what}: {len(jars)} jars from Maven, once")
        try:
            with only_one(home):
                fetch(jars, home, find_java(), ivy_settings or os.environ.get(IVY_SETTINGS), said.append)
        except OSError as exc:
            raise JavaError(
                f'{what} cannot be kept in the cache "{home}": {(exc.strerror or str(exc)).lower()}',
                hint="set XDG_CACHE_HOME to a directory you can write to",
            ) from exc
        if not cached(jars):
            raise JavaError(
                f"{what} cannot be downloaded",
                detail="\n".join(said) or None,
                hint="connect to the network once, or set Spark's spark.jars.ivySettings for a mirror",
            )
    return tuple(home / "jars" / jar.file_name for jar in jars)


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Lock: one process at a time changes the cache."""
    make_folder(home)
    # Java executes these files: nobody else may replace them.
    home.chmod(FOLDER)
    with open_file(home / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def digest(path: Path) -> str | None:
    """SHA-256 of a file's bytes, None when it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def fetch(
    jars: Sequence[Jar],
    home: Path,
    java: JavaHome,
    settings: str | None,
    say: Callable[[str], None],
    consequence: str = "",
) -> None:
    """Download missing jars with one run of the Ivy that pyspark includes, and verify them.

    Each jar is put in place atomically. Failures are reported through `say`, a line each.
    """
    target = home / "jars"
    missing = [jar for jar in jars if digest(target / jar.file_name) != jar.sha256]
    if not missing:
        return
    names = ", ".join(jar.artifact for jar in missing)
    say(f"fetching {missing[0] if len(missing) == 1 else f'{len(missing)} jars'}")
    make_folder(target)
    with tempfile.TemporaryDirectory(dir=target) as folder:
        command = _ivy(missing, Path(folder), home, java, settings)
        timeout = FETCH_SECONDS + FETCH_SECONDS_PER_JAR * len(missing)
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=True,
                umask=OTHERS,
            )
        except subprocess.SubprocessError:
            say(f"{names} cannot be downloaded{consequence}")
            return
        for jar in missing:
            file = Path(folder) / jar.file_name
            if digest(file) == jar.sha256:
                file.replace(target / jar.file_name)
            else:
                say(f"{jar.artifact} was downloaded but is not the pinned file: it is not used")
    # Ivy's own copies are only useful for an interrupted download.
    shutil.rmtree(home / "ivy", ignore_errors=True)


def _ivy(jars: Sequence[Jar], folder: Path, home: Path, java: JavaHome, settings: str | None) -> list[str]:
    """The command that downloads exactly these jars, without dependencies, into a folder."""
    from velostream.spark.gateway import SPARK_HOME

    wanted = "".join(
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} "
        f'rev={quoteattr(jar.version)} transitive="false" conf="default->default"/>'
        for jar in jars
    )
    module = folder / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="velostream" module="jars" revision="1"/>'
        f'<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wanted}</dependencies></ivy-module>",
        encoding="utf-8",
    )
    ivy = next((SPARK_HOME / "jars").glob("ivy-*.jar"))
    command = [str(java.java), *java.options, "-jar", str(ivy)]
    command += ["-settings", settings] if settings else []
    command += ["-cache", str(home / "ivy"), "-ivy", str(module), "-confs", "default"]
    return [*command, "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
