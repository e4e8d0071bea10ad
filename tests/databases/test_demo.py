"""`velo demo --postgres`: a profile that is deleted with psql leaves the joined table."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from database_servers import programs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.sampled(3)]


def test_the_demo_with_postgresql(tmp_path: Path) -> None:
    if programs() is None:
        pytest.skip("PostgreSQL is missing: scripts/databases installs it")
    data = str(tmp_path / "data")
    command = [sys.executable, "-m", "velostream"]
    ran = subprocess.run(
        [*command, "demo", "--postgres", "--fast", "--data-dir", data],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("followed in") == 3
    assert "psql -c" in ran.stdout
    asked = [*command, "sql", "--data-dir", data, "--format", "csv", "SELECT name FROM pnl ORDER BY name"]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    assert answer.split()[1:] == ["Ada", "Ben", "Cleo", "Eve", "Finn"]
