"""What happens to one small file of a job is put right, or refused by its name."""

from __future__ import annotations

import json
import logging
import shutil
import zlib
from typing import TYPE_CHECKING

import pytest

from files_model import keys, reader_of
from refusals import refusal
from velostream.connectors.base import SourceContext
from velostream.connectors.datagen.options import DatagenOptions
from velostream.connectors.datagen.source import DatagenSource
from velostream.connectors.files.spool.spool import Spool
from velostream.connectors.kafka.read.notes import SourceMemory
from velostream.disk.journal import Journal
from velostream.disk.record import Record

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path


def harmed(whole: bytes, rng: random.Random) -> Iterator[bytes | None]:
    """Deleted (None), empty, cut off, with one bit another."""
    yield None
    yield b""
    for length in rng.sample(range(1, len(whole)), 5):
        yield whole[:length]
    for place in rng.sample(range(len(whole)), 30):
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.randrange(8)
        yield bytes(changed)


def put(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(content)


# --- a record in two files ------------------------------------------------------------------------------


def test_harm_to_either_file_of_a_record_is_put_right_and_told(
    tmp_path: Path, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    path, copy = tmp_path / "r.json", tmp_path / "r.copy.json"
    other = Record(tmp_path / "other.json", "another job's")
    other.save({"n": 7})
    record = Record(path, "mine")
    record.save({"n": 1})
    older = path.read_bytes()
    record.save({"n": 2})
    whole = path.read_bytes()
    for target in (path, copy):
        for content in (*harmed(whole, rng), older, (tmp_path / "other.json").read_bytes()):
            put(target, content)
            caplog.clear()
            assert Record(path, "mine", required=True).load() == {"n": 2}, content
            assert any(f'"{target}"' in message for message in caplog.messages)
            assert path.read_bytes() == copy.read_bytes() == whole


def test_a_record_that_is_lost_altogether_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    assert Record(path, "mine").load() is None
    with refusal("data_dir.corrupt", "r.json", why="missing"):
        Record(path, "mine", required=True).load()
    Record(path, "mine").save({"n": 1})
    (tmp_path / "r.copy.json").unlink()
    path.write_bytes(path.read_bytes()[:-3])
    with refusal("data_dir.corrupt", "r.json", why="damaged"):
        Record(path, "mine").load()


def test_files_of_a_job_of_the_same_name_elsewhere_are_not_taken(tmp_path: Path) -> None:
    """They may say more, so they are not only older."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, count in ((here, 1), (there, 5)):
        folder.mkdir()
        record = Record(folder / "r.json", "1-t s")
        for number in range(count):
            record.save({"n": number})
        journal(folder / "journal", count)
    for name in ("r.json", "r.copy.json"):
        kept = (here / name).read_bytes()
        shutil.copy(there / name, here / name)
        with refusal("data_dir.corrupt", "r.json", "r.copy.json"):
            Record(here / "r.json", "1-t s").load()
        (here / name).write_bytes(kept)
    assert Record(here / "r.json", "1-t s").load() == {"n": 0}
    shutil.copy(there / "journal", here / "journal")
    with refusal("data_dir.corrupt", "journal", "journal.closed"):
        Journal(here / "journal", "mine").load()


def line(value: object) -> str:
    body = json.dumps(value, separators=(",", ":"))
    return f"{zlib.crc32(body.encode()):08x} {body}\n"


def test_records_of_the_format_before_are_taken_over(tmp_path: Path) -> None:
    """A line with a checksum under another name, or plain JSON under the same."""
    (tmp_path / "r.jsonl").write_text(line({"n": 1}) + line({"n": 2}))
    for _ in range(2):
        record = Record(tmp_path / "r.json", "mine", required=True, before=tmp_path / "r.jsonl")
        assert record.load() == {"n": 2}
        assert not (tmp_path / "r.jsonl").exists()
    (tmp_path / "plain.json").write_text('{"n": 3}')
    for _ in range(2):
        assert Record(tmp_path / "plain.json", "mine").load() == {"n": 3}
    assert (tmp_path / "plain.json").read_bytes() == (tmp_path / "plain.copy.json").read_bytes()


def test_a_kafka_source_that_was_made_before_must_remember(tmp_path: Path) -> None:
    """Without the shift of a topic that was made again, records would be passed over."""
    memory = SourceMemory(tmp_path, "1-t s")
    memory.began({"t/0": 5}, {"t": "first"})
    memory.made_again("t", "second", {"t/0": 100})
    (tmp_path / "kafka.json").unlink()
    again = SourceMemory(tmp_path, "1-t s", resumed=True)
    assert (again.start, again.shift("t/0"), again.topics) == ({"t/0": 5}, 100, {"t": "second"})
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    with refusal("data_dir.corrupt", "kafka.json", why="missing"):
        SourceMemory(tmp_path, "1-t s", resumed=True)
    (tmp_path / "kafka.jsonl").write_text(line({"start": {"t/0": 5}, "topics": {}, "shifts": {}, "gaps": []}))
    assert SourceMemory(tmp_path, "1-t s", resumed=True).start == {"t/0": 5}


def test_a_generator_that_was_made_before_must_know_when(tmp_path: Path) -> None:
    DatagenSource(DatagenOptions(), SourceContext(tmp_path))
    for path in tmp_path.iterdir():
        path.unlink()
    with refusal("data_dir.corrupt", "created.json", why="missing"):
        DatagenSource(DatagenOptions(), SourceContext(tmp_path, resumed=True))


# --- a journal --------------------------------------------------------------------------------------------


def journal(path: Path, entries: int) -> Journal:
    made = Journal(path, "mine")
    made.load()
    for number in range(entries):
        made.append({"n": number})
    made.close()
    return made


def test_harm_to_a_journal_that_was_closed_is_refused_by_name(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "journal"
    journal(path, 3)
    older = path.read_bytes()
    journal(path, 3)
    journal(tmp_path / "other", 9)
    foreign = Journal(tmp_path / "foreign", "another job's")
    foreign.load()
    for number in range(20):
        foreign.append({"n": number})
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    cut = [b"".join(lines[:count]) for count in range(1, len(lines))]
    for content in (*harmed(whole, rng), older, (tmp_path / "foreign").read_bytes(), *cut):
        put(path, content)
        with refusal("data_dir.corrupt", "journal"):
            Journal(path, "mine").load()
        assert not path.exists() or path.read_bytes() == content, "what is refused stays as it is"
    path.write_bytes(whole)
    assert [entry["n"] for entry in Journal(path, "mine").load()] == [0, 1, 2, 0, 1, 2]


def test_the_note_of_a_journal_is_only_a_check(
    tmp_path: Path, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    path, note = tmp_path / "journal", tmp_path / "journal.closed"
    journal(path, 1)
    older = note.read_bytes()
    journal(path, 2)
    foreign = Journal(tmp_path / "other", "another job's")
    foreign.load()
    for _ in range(20):
        foreign.append({})
    foreign.close()
    for content in (*harmed(note.read_bytes(), rng), older, (tmp_path / "other.closed").read_bytes()):
        put(note, content)
        assert len(Journal(path, "mine").load()) == 3


def test_a_journal_that_is_rewritten_never_seems_older(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    made = journal(path, 5)
    older = path.read_bytes()
    made.rewrite([{"n": 4}])
    made.close()
    assert Journal(path, "mine").load() == [{"n": 4}]
    path.write_bytes(older)
    with refusal("data_dir.corrupt", "journal", why="older"):
        Journal(path, "mine").load()


def test_what_a_crash_left_of_a_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal(path, 2)
    whole = path.read_bytes()
    for left in (b"00000000 {half", b"\0" * 4096, b"\0" * 4000 + b'rest of it"}\n'):
        path.write_bytes(whole + left)
        assert len(Journal(path, "mine").load()) == 2
        assert path.read_bytes() == whole


# --- the spool of files -------------------------------------------------------------------------------------


def filled(tmp_path: Path) -> Path:
    """A file that was read in two looks; the folder of what was read."""
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    reader = reader_of(path, tmp_path)
    reader.settle()
    with path.open("a") as out:
        out.write("3,4\n")
    assert keys(reader.settle()) == ["1", "3"]
    reader.source.close()
    return tmp_path / "spool"


def test_a_journal_that_is_gone_is_refused_and_the_segments_stay(tmp_path: Path) -> None:
    """Else all rows would be read again, under positions that the table has already."""
    folder = filled(tmp_path)
    for path in (folder / "journal", folder / "journal.closed"):
        path.unlink()
    segments = sorted((folder / "segments").iterdir())
    with refusal("data_dir.corrupt", "journal", why="missing"):
        Spool(folder)
    shutil.rmtree(folder / "segments")
    with refusal("data_dir.corrupt", "journal", why="missing"):
        Spool(folder, resumed=True)
    assert len(segments) == 2


def test_a_spool_that_is_older_than_the_table_is_refused_and_nothing_is_deleted(tmp_path: Path) -> None:
    """Also when it was never closed: the table's own position tells."""
    folder = filled(tmp_path)
    (folder / "journal.closed").unlink()
    lines = (folder / "journal").read_bytes().splitlines(keepends=True)
    (folder / "journal").write_bytes(b"".join(lines[:-1]))
    reader = reader_of(tmp_path / "x.csv", tmp_path)
    with refusal("data_dir.corrupt", "journal", why="older"):
        reader.source.latest({"spool": 2})
    assert len(list((folder / "segments").iterdir())) == 2


@pytest.mark.parametrize("harm", ["gone", "cut off", "flipped"])
def test_a_harmed_segment_is_refused_when_it_is_read(tmp_path: Path, harm: str) -> None:
    folder = filled(tmp_path)
    path = min((folder / "segments").iterdir())
    whole = path.read_bytes()
    put(path, {"gone": None, "cut off": whole[:-1], "flipped": b"9" + whole[1:]}[harm])
    spool = Spool(folder)
    first, second = spool.live.values()
    assert spool.path(second).exists()
    with refusal("data_dir.corrupt", path.name):
        spool.path(first)
