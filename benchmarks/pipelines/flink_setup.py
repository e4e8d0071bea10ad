"""PyFlink: its packages, which forbid ours, in a virtual environment of its own, and its connector."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import HERE
from velostream.errors import JavaError
from velostream.spark.jars.maven import Jar, fetched
from velostream.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Sequence

VENV = HERE.parent / ".venv-flink"
REQUIREMENTS = Path(__file__).with_name("flink-requirements.txt")
"""Made by `uv pip compile --universal --python-version 3.11 --generate-hashes` of `apache-flink==2.3.0`."""
PYTHONS = ">=3.11,<3.13"
"""For which there is a PyFlink."""
CONNECTOR = Jar(
    "org.apache.flink",
    "flink-sql-connector-kafka",
    "5.0.0-2.2",
    "5605c691d11a501382c383fecba37a7a552467da5ab7ba904ef5d6f3d62c5616",
)
"""The newest there is; made for Flink 2.2, it runs on 2.3."""
INSTALL_SECONDS = 900.0


class NoFlinkError(Exception):
    """It cannot be run here, and why."""


@dataclass(frozen=True)
class Flink:
    """How to start a process of it."""

    python: Path
    jar: Path
    environment: dict[str, str]


def prepared(logs: Path) -> Flink:
    """Install what is missing, once; NoFlinkError says why that cannot be done. Its logs go to the folder."""
    try:
        (jar,) = fetched([CONNECTOR], "Flink's Kafka connector", say=_say)
        java = find_java()
    except JavaError as exc:
        raise NoFlinkError(f"{exc.message}: {exc.detail or exc.hint}") from exc
    environment = {
        "JAVA_HOME": str(java.home),
        "FLINK_LOG_DIR": str(logs),
        # The heap that the program written by hand has. Flink's own settings of memory are for its cluster.
        "JAVA_TOOL_OPTIONS": " ".join(("-Xmx4g", *java.options)),
    }
    return Flink(_installed(), jar, environment)


def _installed() -> Path:
    python, done = VENV / "bin" / "python", VENV / ".installed"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if done.is_file() and done.read_text(encoding="ascii") == wanted:
        return python
    _say(f"installing PyFlink into {VENV.name}, once")
    shutil.rmtree(VENV, ignore_errors=True)
    tools = HERE.parent / ".venv-tools" / "bin" / "uv"
    uv = shutil.which("uv") or (str(tools) if tools.is_file() else None)
    if uv is not None:
        _run(uv, "venv", "--quiet", "--python", PYTHONS, str(VENV))
        _run(uv, "pip", "install", "--quiet", "--python", str(python), *_pinned())
    elif sys.version_info < (3, 13):
        _run(sys.executable, "-m", "venv", str(VENV))
        _run(str(python), "-m", "pip", "install", "--quiet", *_pinned())
    else:
        raise NoFlinkError(f"PyFlink wants Python {PYTHONS}, and there is no uv to find one")
    done.write_text(wanted, encoding="ascii")
    return python


def _pinned() -> Sequence[str]:
    return ("--require-hashes", "--requirement", str(REQUIREMENTS))


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_SECONDS,
            env=dict(os.environ),
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise NoFlinkError(f"{Path(command[0]).name}: {exc}") from exc
    if done.returncode != 0:
        raise NoFlinkError(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-500:]}")


def _say(line: str) -> None:
    print(line, file=sys.stderr)
