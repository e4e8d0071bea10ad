"""Java options of a broker: its class path, its log, and a class archive for fast starts."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from velostream.config import cache_home
from velostream.spark.java import find_java
from velostream.spark.prepare import base_archive

if TYPE_CHECKING:
    from collections.abc import Sequence

OPTIONS = ("-Xms64m", "-Xmx512m", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true")


def java_command(folder: Path, jars: Sequence[Path], *arguments: str) -> list[str]:
    """The command that runs one of Kafka's programs, which logs into the broker's folder."""
    java = find_java()
    config = Path(__file__).with_name("log4j2.properties").as_uri()
    return [
        str(java.java),
        *java.options,
        *OPTIONS,
        f"-Dlog4j2.configurationFile={config}",
        f"-Dvelostream.logs={folder / 'logs'}",
        f"-Djava.io.tmpdir={folder / 'tmp'}",
        "-cp",
        os.pathsep.join(map(str, (*_logging_jars(), *jars))),
        *arguments,
    ]


def class_archive(jars: Sequence[Path], recording: str | None) -> tuple[list[str], Path | None]:
    """Options for Java's class archive of the broker: it starts in 1.2 s instead of 2.2.

    The first time, with a name for the `recording`, they let Java record its classes at exit, to the file
    that is returned; whoever waits for the exit puts it in place with the suffix `.jsa`.
    """
    java = find_java()
    parts = [java.version, str(java.java.resolve()), *map(str, (*_logging_jars(), *jars))]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    archive = cache_home() / f"broker-{key}.jsa"
    base = base_archive(cache_home(), java)
    if not all(path.is_file() for path in base):
        return [], None
    if archive.is_file():
        return [f"-XX:SharedArchiveFile={os.pathsep.join(map(str, (*base, archive)))}"], None
    if recording is None:
        return [], None
    draft = archive.with_suffix(f".{recording}")
    return [
        *(f"-XX:SharedArchiveFile={path}" for path in base),
        f"-XX:ArchiveClassesAtExit={draft}",
    ], draft


def _logging_jars() -> list[Path]:
    """The logging library that Kafka expects: Spark's."""
    from velostream.spark.gateway import SPARK_HOME

    names = ("slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl")
    return [next((SPARK_HOME / "jars").glob(f"{name}-[0-9]*.jar")) for name in names]
