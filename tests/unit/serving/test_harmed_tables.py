"""Whatever happens to one file of a table: it opens with the same rows, or is refused by the file's name."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from refusals import refusal
from velostream.errors import CorruptDataError
from velostream.model.changes import Commit
from velostream.model.tables import TableSpec
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from velostream.serving.contract.table import Table

NARROW = pa.schema([("k", pa.int64()), ("v", pa.string())])
WIDE = NARROW.append(pa.field("more", pa.string()))


def put(table: Table, *numbers: int, **more: str) -> None:
    rows = [{"k": number, "v": f"v{number}", **more} for number in numbers]
    commit = Commit("c", numbers[0], {"s": {"at": numbers[0]}}, datetime(2026, 1, 1, tzinfo=UTC))
    table.commit_keyed(pa.Table.from_pylist(rows, table.spec.schema), None, commit)


@pytest.fixture
def stopped(tmp_path: Path) -> tuple[Path, Path]:
    """Two tables with snapshots, several log files and readers; and the same folders at an earlier time."""
    now, older = tmp_path / "now", tmp_path / "older"
    with TableStore(now) as store:
        for name in ("mine", "other"):
            table = store.create(TableSpec(name, NARROW, ("k",)))
            table.register_reader("follower", 0)
            put(table, 1, 2)
            table.checkpoint()
            put(table, 3 if name == "mine" else 30)
    shutil.copytree(now, older)
    with TableStore(now) as store:
        for name in ("mine", "other"):
            table = store.open(name)
            table.evolve(WIDE)
            put(table, 4 if name == "mine" else 40, more="x")
            table.register_reader("another", 2)
            table.checkpoint()
            put(table, 5 if name == "mine" else 50, 2, more="y")
    return now, older


def harms(path: Path, root: Path, older: Path, rng: random.Random) -> Iterator[tuple[str, bytes | None]]:
    whole = path.read_bytes()
    yield "deletion", None
    yield "emptying", b""
    for length in rng.sample(range(1, len(whole)), 6) if len(whole) > 6 else ():
        yield f"truncation to {length}", whole[:length]
    for place in rng.sample(range(len(whole)), min(12, len(whole))):
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.randrange(8)
        yield f"flip at {place}", bytes(changed)
    before = older / "mine" / path.name
    if before.exists():
        yield "older version", before.read_bytes()
    other = root / "other" / path.name
    yield "replacement", other.read_bytes()


def content(root: Path, *, read_only: bool) -> tuple[int, list[dict[str, object]], object]:
    with TableStore(root, read_only=read_only) as store:
        table = store.open("mine")
        rows = table.snapshot().sort_by("k").to_pylist()
        return table.version, rows, table.last_commit


def test_the_same_rows_or_a_refusal(
    stopped: tuple[Path, Path], tmp_path: Path, rng: random.Random, rounds: Callable[[int, int], int]
) -> None:
    now, older = stopped
    expected = content(now, read_only=True)
    refusals = tried = 0
    copy = tmp_path / "copy"
    for _ in range(rounds(1, 10)):
        for path in sorted((now / "mine").iterdir()):
            for name, harmed in harms(path, now, older, rng):
                for read_only in (True, False):
                    shutil.rmtree(copy, ignore_errors=True)
                    shutil.copytree(now, copy)
                    target = copy / "mine" / path.name
                    if harmed is None:
                        target.unlink()
                    else:
                        target.write_bytes(harmed)
                    tried += 1
                    try:
                        found, error = content(copy, read_only=read_only), None
                    except CorruptDataError as exc:
                        found, error = expected, exc
                        refusals += 1
                    assert found == expected, (path.name, name)
                    assert error is None or (str(copy / "mine") in error.message and error.hint), error
    assert refusals > 50
    assert tried - refusals > 50


def test_files_of_another_table_of_the_same_shape_are_told_from_its_own(stopped: tuple[Path, Path]) -> None:
    now, _ = stopped
    for name in ("table.json", max((now / "other").glob("log-*")).name):
        kept = (now / "mine" / name).read_bytes()
        shutil.copy(now / "other" / name, now / "mine" / name)
        with refusal("data_dir.corrupt", why="is of"):
            content(now, read_only=True)
        (now / "mine" / name).write_bytes(kept)


def test_an_older_description_is_refused(stopped: tuple[Path, Path]) -> None:
    """It would drop the columns that came since."""
    now, older = stopped
    shutil.copy(older / "mine" / "table.json", now / "mine")
    with refusal("data_dir.corrupt", "table.json", why="older"):
        content(now, read_only=False)


def test_who_followed_a_table_that_was_put_back_starts_afresh(stopped: tuple[Path, Path]) -> None:
    now, older = stopped
    with TableStore(now) as store:
        version = store.open("mine").version
    with TableStore(older) as store:
        table = store.open("mine")
        assert table.version < version
        with refusal("table.lagging_reader", "mine", version):
            list(table.changes_between(version, table.version).to_batches())
