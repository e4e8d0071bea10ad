"""After any sequence of changes, the snapshot is what the files hold and the changes add up to it."""

from __future__ import annotations

import pytest
from files_model import Folder, Reader, expected

STEPS = 40


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("several", [False, True], ids=["one file", "pattern"])
def test_random_changes(tmp_path, rng, rounds, several):
    for number in range(rounds(6, 300)):
        seed = rng.randrange(2**32)
        follow(tmp_path / str(number), seed, several)


def follow(tmp_path, seed, several):
    tmp_path.mkdir()
    folder = Folder(tmp_path / "data", seed, several)
    path = tmp_path / "data" / "*.csv" if several else folder.paths[0]
    reader = Reader(str(path), tmp_path / "spool")
    history = []
    for _ in range(STEPS):
        history += [folder.change() for _ in range(folder.random.randrange(1, 3))]
        if folder.random.random() < 0.2:
            reader.reopen()
        seen = reader.settle()
        assert seen == expected(folder.paths), (seed, history)
        if folder.random.random() < 0.2:
            reader.source.commit(reader.offset)
        if folder.random.random() < 0.1:
            reader.source._spool.compact(reader.offset["spool"])
