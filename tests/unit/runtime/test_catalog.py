"""A catalogue that is missing, damaged, older or another's is refused, and repair puts it back."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from refusals import refusal
from velostream.config import load
from velostream.runtime.catalog.catalog import remembered
from velostream.runtime.catalog.file import CatalogFile
from velostream.runtime.catalog.repair import repair
from velostream.runtime.instance import Instance, open_instance
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from velostream.errors import VelostreamError

TABLES = ("`odd name`", "orders")


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Two tables that were filled by hand, a view, and a script's statement that ran once."""
    with open_instance(tmp_path / "data") as database:
        for table in TABLES:
            database.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, v STRING)")
            database.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
        database.sql("CREATE VIEW second AS SELECT * FROM orders WHERE id = 2")
        database.catalog.mark_done("once")
    return tmp_path / "data"


def files(root: Path) -> dict[Path, bytes]:
    """What is durable."""
    return {p: p.read_bytes() for kind in ("tables", "jobs") for p in (root / kind).rglob("*") if p.is_file()}


def check_content(root: Path) -> None:
    with open_instance(root) as database:
        for table in (*TABLES, "second"):
            rows = {tuple(row) for row in database.sql(f"SELECT * FROM {table}")}
            assert rows == ({(2, "b")} if table == "second" else {(1, "a"), (2, "b")})
        assert database.catalog.done("once")


def refused(root: Path, why: str = "") -> VelostreamError:
    """Opening for writing, for reading, and asking for names: each refuses and leaves every file alone."""
    before = files(root)
    for read_only in (False, True):
        with refusal("data_dir.corrupt", "catalog.json", why=why) as caught:
            Instance(load(None, data_dir=root), read_only=read_only)
    with refusal("data_dir.corrupt", "catalog.json", why=why):
        remembered(root)
    assert files(root) == before, "opening must not touch what it does not know"
    assert "velo doctor --repair" in (caught.value.hint or "")
    return caught.value


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def change_a_name(path: Path) -> None:
    path.write_text(path.read_text().replace("orders", "others"))


def change_a_literal(path: Path) -> None:
    path.write_text(path.read_text().replace("id = 2", "id = 1"))


@pytest.mark.parametrize("harm", [remove, cut, empty, change_a_name, change_a_literal])
def test_a_damaged_catalogue_is_refused_and_put_back(filled: Path, harm: Callable[[Path], None]) -> None:
    harm(filled / "catalog.json")
    error = refused(filled)
    last = max((filled / "copies").iterdir())
    assert str(last) in (error.hint or ""), "the last good copy is named"
    assert any(str(last) in line for line in repair(filled))
    check_content(filled)
    assert repair(filled) == []


def test_every_flipped_bit_of_a_catalogue_is_noticed(filled: Path, rng: random.Random) -> None:
    path = filled / "catalog.json"
    whole = path.read_bytes()
    for place in rng.sample(range(len(whole)), 200):
        harmed = bytearray(whole)
        harmed[place] ^= 1 << rng.randrange(8)
        path.write_bytes(harmed)
        with refusal("data_dir.corrupt", "catalog.json", why="damaged"):
            remembered(filled)


def test_the_catalogue_of_another_directory_is_refused(filled: Path, tmp_path: Path) -> None:
    """Also where it happens to name the same tables."""
    other = tmp_path / "other"
    with open_instance(other) as database:
        for table in TABLES:
            database.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, v STRING)")
    shutil.copy(other / "catalog.json", filled)
    refused(filled, "another data directory")
    repair(filled)
    check_content(filled)
    assert list((filled / "aside").rglob("catalog.json"))


def test_an_older_catalogue_is_refused(filled: Path) -> None:
    """Without the mark of what ran once, a script's INSERT would run again."""
    shutil.copy(min((filled / "copies").iterdir()), filled / "catalog.json")
    refused(filled, "older")
    repair(filled)
    check_content(filled)


def test_copies_that_are_gone_or_damaged_are_made_again(filled: Path, tmp_path: Path) -> None:
    open_instance(tmp_path / "other").close()
    whole = (filled / "catalog.json").read_bytes()
    foreign = next((tmp_path / "other" / "copies").iterdir())
    for harm in (cut, remove, empty, lambda path: shutil.copy(foreign, path)):
        harm(max((filled / "copies").iterdir()))
        open_instance(filled).close()
        assert max((filled / "copies").iterdir()).read_bytes() == whole
    shutil.rmtree(filled / "copies")
    check_content(filled)
    assert (filled / "catalog.json").read_bytes() in [p.read_bytes() for p in (filled / "copies").iterdir()]


def test_without_any_copy_the_tables_tell_what_made_them(filled: Path) -> None:
    (filled / "catalog.json").unlink()
    shutil.rmtree(filled / "copies")
    refused(filled, "missing: it does not know tables/")
    told = repair(filled)
    with open_instance(filled) as database:
        for table in TABLES:
            assert len(database.sql(f"SELECT * FROM {table}").rows()) == 2
            database.sql(f"INSERT INTO {table} VALUES (3, 'c')")
    assert any("will run again" in line for line in told)


def test_what_an_older_copy_was_about_to_make_is_not_deleted(filled: Path) -> None:
    """The last copy is of when the table was announced: by now it is there, with rows."""
    with open_instance(filled) as database:
        database.sql("CREATE TABLE late (id INT)")
        database.sql("INSERT INTO late VALUES (1)")
    (filled / "catalog.json").unlink()
    newest, announced, *_ = sorted((filled / "copies").iterdir(), reverse=True)
    assert json.loads(announced.read_text())["unfinished"] == ["tables/late"]
    newest.unlink()
    repair(filled)
    with open_instance(filled) as database:
        assert database.sql("SELECT * FROM late").rows() == [(1,)]


def test_a_table_that_nobody_knows_is_refused_and_set_aside_with_its_rows(
    filled: Path, tmp_path: Path
) -> None:
    with open_instance(tmp_path / "other") as database:
        database.sql("CREATE TABLE stranger (id INT)")
        database.sql("INSERT INTO stranger VALUES (7)")
    shutil.copytree(tmp_path / "other" / "tables" / "stranger", filled / "tables" / "stranger")
    (filled / "jobs" / "9-stranger").mkdir(parents=True)
    refused(filled, "does not know jobs/9-stranger and 1 more")
    repair(filled)
    check_content(filled)
    with open_instance(filled) as database:
        assert database.sql("SELECT * FROM stranger").rows() == [(7,)]
    assert list((filled / "aside").glob("*/jobs/9-stranger"))


def test_what_a_crash_left_of_what_was_made_or_dropped_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data"
    with monkeypatch.context() as patched, open_instance(root) as database:
        database.sql("CREATE TABLE t (id INT)")
        patched.setattr(TableStore, "drop", lambda *_, **__: None)
        database.sql("DROP TABLE t")
        patched.setattr(TableStore, "create", _dies_after(TableStore.create))
        with pytest.raises(KeyboardInterrupt):
            database.sql("CREATE TABLE u (id INT)")
    assert {p.name for p in (root / "tables").iterdir()} == {"dead_letters", "t", "u"}
    assert json.loads((root / "catalog.json").read_text())["unfinished"] == ["tables/t", "tables/u"]
    open_instance(root).close()
    assert {p.name for p in (root / "tables").iterdir()} == {"dead_letters"}


def _dies_after(create: Callable[..., object]) -> Callable[..., object]:
    def dying(*args: object, **options: object) -> object:
        create(*args, **options)
        raise KeyboardInterrupt

    return dying


def test_a_table_whose_folder_is_gone_is_refused_by_its_name_and_can_be_dropped(filled: Path) -> None:
    shutil.rmtree(filled / "tables" / "orders")
    with open_instance(filled) as database:
        with refusal("data_dir.corrupt", "tables/orders", why="missing"):
            database.sql("SELECT * FROM orders")
        assert len(database.sql("SELECT * FROM `odd name`").rows()) == 2
        database.sql("DROP VIEW second")
        database.sql("DROP TABLE orders")
    open_instance(filled).close()


def test_dead_letters_that_are_gone_are_missed(filled: Path) -> None:
    shutil.rmtree(filled / "tables" / "dead_letters")
    with refusal("data_dir.corrupt", "dead_letters", why="missing"):
        open_instance(filled)
    assert repair(filled) == ["table dead_letters begins anew, empty"]
    check_content(filled)


def test_dead_letters_that_are_damaged_are_set_aside_by_repair(filled: Path) -> None:
    cut(filled / "tables" / "dead_letters" / "table.json")
    with refusal("data_dir.corrupt", "dead_letters/table.json"):
        open_instance(filled)
    assert any("begins anew" in line for line in repair(filled))
    check_content(filled)


def test_a_directory_that_somebody_holds_is_not_repaired(filled: Path) -> None:
    with open_instance(filled), refusal("data_dir", os.getpid()):
        repair(filled)


def test_a_catalogue_of_the_first_format_is_taken_over(filled: Path) -> None:
    """It had no checksum, no copies, and did not say which directory it is of."""
    data = json.loads((filled / "catalog.json").read_text())
    old = {key: data[key] for key in ("entries", "done", "jobs_made")}
    (filled / "catalog.json").write_text(json.dumps({"format": 1, **old}, indent=1))
    shutil.rmtree(filled / "copies")
    assert {entry.name for entry in remembered(filled)} == {"odd name", "orders", "second"}
    assert not (filled / "copies").exists()
    check_content(filled)
    assert CatalogFile(filled).good_copies()
