"""After any sequence of changes, the snapshot is what the files hold and the changes add up to it."""

from __future__ import annotations

import pytest

from files_model import Folder, Reader, expected
from velostream.connectors.files.spool import merges

STEPS = 40


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("several", [False, True], ids=["one file", "pattern"])
@pytest.mark.parametrize("fewest", [2, 8])
def test_random_changes(tmp_path, rng, rounds, several, fewest, monkeypatch):
    monkeypatch.setattr(merges, "FEWEST", fewest)
    for number in range(rounds(4, 60)):
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
        if folder.random.random() < 0.3:
            earlier = max(reader.source.spool.oldest, reader.offset["spool"] - folder.random.randrange(3))
            reader.source.commit({"spool": earlier})
            reader.check_places()
        if folder.random.random() < 0.1:
            reader.source.spool.compact(reader.offset["spool"])
