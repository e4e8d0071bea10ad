"""kill -9 at any moment leaves a spool from which everything goes on, nothing lost or doubled."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "connectors"))
from files_model import Folder, Reader, expected


@pytest.mark.timeout(3600)
def test_kills(tmp_path, rng, rounds):
    folder = Folder(tmp_path / "data", rng.randrange(2**32), several=True)
    pattern, spool = str(tmp_path / "data" / "*.csv"), tmp_path / "spool"
    script = Path(__file__).parent / "follow_files.py"
    for _ in range(rounds(6, 150)):
        child = subprocess.Popen([sys.executable, str(script), pattern, str(spool)], stdout=subprocess.PIPE)
        try:
            assert child.stdout.readline() == b"ready\n"
            deadline = time.monotonic() + rng.random() * 0.3
            while time.monotonic() < deadline:
                folder.change()
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
        reader = Reader(pattern, spool)
        assert reader.settle() == expected(folder.paths)
        known = {path.name.removesuffix(".index") for path in (spool / "segments").iterdir()}
        assert known >= set(reader.source.spool.live)
