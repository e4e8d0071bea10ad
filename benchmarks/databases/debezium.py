"""Debezium embedded in a process of its own, over the same backlog of changes."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from benchmarks.measure import HERE
from velostream.config import cache_home
from velostream.spark.gateway import SPARK_HOME
from velostream.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

VERSION = "3.4.0.Final"
PROGRAM = HERE / "databases" / "EmbeddedDebezium.java"


def jars(connector: str) -> Path:
    """Debezium's jars, fetched once."""
    home = cache_home() / "debezium" / f"{connector}-{VERSION}"
    if (home / "whole").is_file():
        return home
    java = find_java()
    ivy = next((SPARK_HOME / "jars").glob("ivy-*.jar"))
    for artifact in ("debezium-embedded", f"debezium-connector-{connector}"):
        subprocess.run(
            [
                str(java.java),
                "-jar",
                str(ivy),
                "-cache",
                str(home / "ivy"),
                "-dependency",
                "io.debezium",
                artifact,
                VERSION,
                "-confs",
                "default",
                "-retrieve",
                f"{home}/[artifact]-[revision].[ext]",
            ],
            check=True,
            capture_output=True,
        )
    (home / "whole").touch()
    return home


def changes(
    connector: str, properties: Mapping[str, str], folder: Path, change: Callable[[], None], count: int
) -> dict[str, float]:
    """The seconds for a backlog that was made while it was stopped: of all, and from the first event on."""
    written = folder / "debezium.properties"
    given = {
        "name": "bench",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / "offsets"),
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder / "history"),
        "topic.prefix": "bench",
        "converter.schemas.enable": "false",
        "max.batch.size": "8192",
        "max.queue.size": "32768",
        **properties,
    }
    written.write_text("".join(f"{name}={value}\n" for name, value in given.items()), encoding="utf-8")
    command = [
        str(find_java().java),
        "-Xmx2g",
        "-cp",
        f"{jars(connector)}/*",
        str(PROGRAM),
        str(written),
    ]
    subprocess.run([*command, "0"], check=True, capture_output=True, timeout=300)
    change()
    began = time.monotonic()
    done = subprocess.run([*command, str(count)], check=True, capture_output=True, timeout=1800, text=True)
    whole = time.monotonic() - began
    streaming = next(line for line in done.stdout.splitlines() if line.startswith("seconds"))
    return {"whole": whole, "streaming": float(streaming.split()[1])}
