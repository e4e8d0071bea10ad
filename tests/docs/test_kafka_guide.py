"""The Kafka guide, pasted into a shell: each block of commands from an empty folder, with what it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from velostream.devtools.broker.folder import stop
from velostream.devtools.broker.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

GUIDE = Path(__file__).parents[2] / "docs" / "kafka.md"
_BLOCK = re.compile(r"^```(bash|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
START = "velo broker start --background"

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    stop(tmp_path / ".velostream" / "broker")


def test_the_guide_can_be_pasted(folder: Path) -> None:
    blocks = [(match[1], match[2]) for match in _BLOCK.finditer(GUIDE.read_text(encoding="utf-8"))]
    assert blocks[0][1].startswith(START)
    commands = folder / "bin"
    commands.mkdir()
    (commands / "velo").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m velostream "$@"\n')
    (commands / "velo").chmod(0o755)
    port = free_port()  # The guide's own port may be taken here.
    environment = {
        **os.environ,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "VELOSTREAM_KAFKA_BROKERS": f"127.0.0.1:{port}",
    }
    environment.pop("VELOSTREAM_DATA_DIR", None)
    printed = ""
    for kind, text in blocks:
        if kind == "text":
            assert _cells(text) in _cells(printed)
            continue
        done = subprocess.run(
            ["bash", "-e"],
            input=text.replace(START, f"{START} --port {port}"),
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        printed = done.stdout


def _cells(text: str) -> str:
    """The text without the widths of columns."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines())
