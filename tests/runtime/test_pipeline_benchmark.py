"""The benchmark of pipelines runs from end to end, at sizes that say nothing about speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SECTIONS = ("loads", "latency", "windows")
ROOT = Path(__file__).resolve().parents[2]
# Minutes of starting processes, for a tool of ours and not for users: with the long tests.
pytestmark = [pytest.mark.spark, pytest.mark.soak]


@pytest.mark.timeout(600)
def test_sections_give_figures(tmp_path: Path) -> None:
    """PyFlink is left out: it is half a gigabyte that nothing else here needs."""
    output = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.pipelines"]
    done = subprocess.run(
        [*command, "--smoke", "--without", "flink", "--sections", *SECTIONS, "--output", output],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(output.read_text(encoding="utf-8"))
    assert set(found["loads"]["group"]) == set(found["latency"]) == {"by_hand", "ours"}
    assert set(found["windows"]["tumbling"]) == {"by_hand", "ours"}
    for taken in (*found["loads"]["group"].values(), *found["windows"]["tumbling"].values()):
        assert min(taken["cold"], taken["warm"], taken["warm cpu"], taken["memory"]) > 0
    for taken in found["latency"].values():
        assert 0 < taken["p50"] <= taken["p99"]
    assert "PySpark by hand" in done.stdout
