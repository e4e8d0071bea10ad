"""The command line in this process: what it prints and how it exits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pytest

from velostream.cli.main import run

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


class Velo(Protocol):
    def __call__(self, *arguments: str) -> Ran: ...


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data directory of `velo` in this test; it does not exist yet."""
    path = tmp_path / "data"
    monkeypatch.setenv("VELOSTREAM_DATA_DIR", str(path))
    monkeypatch.chdir(tmp_path)
    return path


@pytest.fixture
def velo(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> Velo:
    """`velo("check", "app.sql")`: one command, run in this process."""

    def call(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run(arguments)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call
