"""Commands that are run to their end, or left running, on a data directory and a broker of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

VELO = [sys.executable, "-m", "velostream"]
PATIENCE = 120
"""Seconds that a command may take."""


class Velo:
    """Runs commands on this test's data directory and the module's broker."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "VELOSTREAM_KAFKA_BROKERS": address,
            "VELOSTREAM_DATA_DIR": str(folder / "data"),
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def __call__(self, *arguments: str, given: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*VELO, *arguments],
            input=given,
            capture_output=True,
            text=True,
            encoding="utf-8",
            env=self.environment,
            cwd=self.folder,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    def json(self, *arguments: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in self(*arguments, "--format", "json").stdout.splitlines()]

    def values(self, topic: str) -> list[object]:
        return [record["value"] for record in self.json("topic", "show", topic)]

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*VELO, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self.environment,
            cwd=self.folder,
        )
