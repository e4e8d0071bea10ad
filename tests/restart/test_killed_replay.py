"""kill -9 while dead letters are replayed: each row is in its result or among the letters, never in both."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import replay_runner as runner

if TYPE_CHECKING:
    import random

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]

GOOD, MENDED, HOPELESS = [1, 2, 3], [10, 11, 12], 99
JOBS = ("picked", "sums", "written")
OFTEN = ("in the result, letters there",)


def life(folder: Path, mode: str, kill: str = "") -> dict[str, Any] | None:
    """What there was in the end; None of a process that was killed."""
    arguments = [folder / "data", folder / "in.csv", folder / "out.jsonl", mode, kill]
    done = subprocess.run(
        [sys.executable, str(Path(runner.__file__)), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return json.loads(done.stdout) if done.returncode == 0 else None


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with letters, as one life left it."""
    folder = tmp_path_factory.mktemp("made")
    rows = [f"{n},1,2,1" for n in GOOD] + [f"{n},1,1,1" for n in MENDED] + [f"{HOPELESS},1,2,0"]
    (folder / "in.csv").write_text("\n".join(["n,a,b,z", *rows, ""]))
    told = life(folder, "make")
    assert told is not None
    assert sorted(told["picked"]) == sorted(told["written"]) == GOOD
    assert Counter(map(tuple, told["letters"])) == Counter(
        (job, n) for job in JOBS for n in [*MENDED, HOPELESS]
    )
    return folder


@pytest.mark.parametrize(
    "place",
    [pytest.param(place, marks=[] if place in OFTEN else [pytest.mark.soak]) for place in runner.PLACES],
)
def test_killed(made: Path, tmp_path: Path, rng: random.Random, place: str) -> None:
    kept = tmp_path / "kept"
    # The statements name their files by path, so the copy is what is put back.
    shutil.copytree(made, kept)
    number = 1 if "sink" in place else rng.randrange(1, 4)
    try:
        assert life(made, "replay", f"{place} {number}") is None
        told = life(made, "look")
        assert told is not None
        letters = [tuple(letter) for letter in told["letters"]]
        for job in ("picked", "written"):
            there = Counter(told[job]) + Counter(n for name, n in letters if name == job)
            assert there == Counter([*GOOD, *MENDED, HOPELESS]), (job, number)
        counted = sum(count for _, _, count in told["sums"]) + sum(name == "sums" for name, _ in letters)
        assert counted == len([*GOOD, *MENDED, HOPELESS])
        told = life(made, "replay")
        assert told is not None
        assert sorted(told["picked"]) == sorted(told["written"]) == [*GOOD, *MENDED]
        odd, even = ([n for n in [*GOOD, *MENDED] if n % 2 == g] for g in (1, 0))
        assert sorted(told["sums"]) == [[0, sum(even), len(even)], [1, sum(odd), len(odd)]]
        assert Counter(map(tuple, told["letters"])) == Counter((job, HOPELESS) for job in JOBS)
    finally:
        shutil.rmtree(made / "data")
        shutil.copytree(kept / "data", made / "data")
        # A file in the place of the one that was written to would be refused.
        (made / "out.jsonl").write_bytes((kept / "out.jsonl").read_bytes())
