"""Files and folders that may not be read, looked at by a process that may not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

ROOT = os.geteuid() == 0
POWERLESS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
"""Root may read everything, unless it gives that up."""


@pytest.mark.skipif(ROOT and shutil.which("setpriv") is None, reason="root may read everything")
@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("shut", "shut"),
        ("shut/", "shut"),
        ("shut/x.csv", "shut"),
        ("shut/*.csv", "shut"),
        ("open/", "open/x.csv"),
    ],
)
def test_a_forbidden_source_is_told_as_such(tmp_path: Path, path: str, named: str) -> None:
    shut, there = tmp_path / "shut", tmp_path / "open"
    for folder in (shut, there):
        folder.mkdir()
        (folder / "x.csv").write_text("a\n1\n")
    (there / "x.csv").chmod(0)
    shut.chmod(0)
    (tmp_path / "app.sql").write_text(f"CREATE TABLE t AS SELECT * FROM file://{tmp_path}/{path};")
    try:
        ran = subprocess.run(
            [
                *(POWERLESS if ROOT else []),
                sys.executable,
                "-m",
                "velostream",
                "check",
                "--connect",
                "app.sql",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        shut.chmod(0o700)
    assert ran.returncode == 1
    assert f'"{tmp_path}/{named}' in ran.stderr
    assert "may not be read: permission denied" in ran.stderr
    assert "hint: check its permissions" in ran.stderr
    assert "resumes" not in ran.stderr
