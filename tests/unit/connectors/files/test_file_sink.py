"""Each row stands in the file exactly once, whatever happens between two writes."""

from __future__ import annotations

import errno
import json
import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refusals import refusal
from velostream.connectors import registry
from velostream.connectors.base import SinkContext
from velostream.connectors.console.options import ConsoleOptions
from velostream.connectors.console.sink import ConsoleSink
from velostream.connectors.properties import build_options
from velostream.model.columns import WEIGHT
from velostream.model.uri import Uri

SCHEMA = pa.schema([("id", pa.int64()), ("price", pa.decimal128(15, 2))])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "price": [Decimal("12345.60")] * len(ids)}, schema=SCHEMA)


def open_sink(
    path: Path | str, state: Path, schema: pa.Schema = SCHEMA, decimals: str = "number", **properties: str
):
    found = registry.by_scheme("file")
    uri = Uri(f"file://{path}")
    options = build_options(found.options, {**found.parse(uri), **properties}, "file")
    return found.connector.sink(uri, options, SinkContext(state, schema, decimal_format=decimals))


def test_csv_grows_and_is_cut_back_to_what_was_recorded(tmp_path):
    path = tmp_path / "deep" / "out.csv"
    sink = open_sink(path, tmp_path / "state")
    sink.recover(None)
    recorded = sink.write(0, rows(1))
    sink.write(1, rows(2))
    sink = open_sink(path, tmp_path / "state")
    sink.recover(recorded)
    assert path.read_text() == "id,price\n1,12345.60\n"
    recorded = sink.write(1, rows(2, 3))
    assert path.read_text() == "id,price\n1,12345.60\n2,12345.60\n3,12345.60\n"


def test_a_crash_in_the_first_write_leaves_what_was_there_before(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("id,price\n0,1.00\n")
    open_sink(path, tmp_path / "state").write(0, rows(1))
    sink = open_sink(path, tmp_path / "state")
    sink.recover(None)
    assert path.read_text() == "id,price\n0,1.00\n"
    sink.write(0, rows(1))
    assert path.read_text() == "id,price\n0,1.00\n1,12345.60\n"


def test_random_crashes_write_each_row_once(tmp_path, rng):
    path, journal = tmp_path / "out.jsonl", []
    for crash in range(30):
        sink = open_sink(path, tmp_path / "state")
        sink.recover(journal[-1] if journal else None)
        for _ in range(rng.randrange(3)):
            journal.append(sink.write(len(journal), rows(len(journal))))
        if rng.random() < 0.7:
            sink.write(len(journal), rows(len(journal)))
            if rng.random() < 0.5:
                os.truncate(path, path.stat().st_size - rng.randrange(10))
        assert crash < 30
    sink = open_sink(path, tmp_path / "state")
    sink.recover(journal[-1])
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == list(range(len(journal)))


def test_rows_of_others_are_never_cut_off(tmp_path):
    path = tmp_path / "out.csv"
    ours = open_sink(path, tmp_path / "ours")
    ours.recover(None)
    recorded = ours.write(0, rows(1))
    theirs = open_sink(path, tmp_path / "theirs")
    theirs.recover(None)
    ours.write(1, rows(2))
    written = path.read_bytes()
    with refusal("sink.changed", path, why="longer") as caught:
        theirs.write(0, rows(100))
    assert not caught.value.retryable
    with refusal("sink.changed", path, why="longer"):
        open_sink(path, tmp_path / "theirs").recover(None)
    assert path.read_bytes() == written
    # Our own unrecorded write may be cut, but not once rows of others follow it.
    with path.open("a") as other:
        other.write("3,1.00\n")
    with refusal("sink.changed", path, why="longer"):
        open_sink(path, tmp_path / "ours").recover(recorded)
    assert path.read_bytes() == written + b"3,1.00\n"


def test_a_write_that_the_disk_refused_is_taken_back(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    sink = open_sink(path, tmp_path / "state")
    sink.write(0, rows(1))
    written, sync = path.read_bytes(), os.fsync

    def full(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with refusal("sink", path, why="no space left"):
        sink.write(1, rows(2))
    assert path.read_bytes() == written
    monkeypatch.undo()
    sink.write(1, rows(2))
    assert path.read_bytes() == written + b"2,12345.60\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("x,y\n1,2\n", "does not begin with the line id,price"),
        ("id,price", "does not begin with the line id,price"),
        ("id,price\n1,2", "has no end"),
    ],
)
def test_rows_are_not_appended_to_what_they_do_not_fit(tmp_path, content, reason):
    path = tmp_path / "out.csv"
    path.write_text(content)
    with refusal("sink", path, why=reason) as caught:
        open_sink(path, tmp_path / "state")
    assert "another file" in str(caught.value.hint)
    assert path.read_text() == content


def test_a_last_line_without_end_is_not_continued(tmp_path):
    (tmp_path / "out.jsonl").write_text('{"id":1}')
    with refusal("sink", tmp_path / "out.jsonl", why="has no end"):
        open_sink(tmp_path / "out.jsonl", tmp_path / "state")


@pytest.mark.parametrize(
    ("harm", "code"), [("shorter", "sink.changed"), ("replaced", "sink.changed"), ("vanished", "sink")]
)
def test_somebody_elses_work_is_not_guessed_at(tmp_path, harm, code):
    path = tmp_path / "out.csv"
    sink = open_sink(path, tmp_path / "state")
    recorded = sink.write(0, rows(1))
    if harm == "shorter":
        os.truncate(path, 5)
    else:
        other = tmp_path / "other"
        other.write_bytes(path.read_bytes())
        path.unlink()
        if harm == "replaced":
            other.rename(path)
    with refusal(code, path, why=harm):
        sink.write(1, rows(2))
    with refusal(code, path, why=harm):
        open_sink(path, tmp_path / "state").recover(recorded)


@pytest.mark.parametrize("name", ["parts/", "out.parquet"])
def test_parts_appear_whole_and_those_beyond_the_record_go(tmp_path, name):
    form = {"format": "parquet"} if name.endswith("/") else {}
    target = f"{tmp_path / name}/" if name.endswith("/") else tmp_path / name
    sink = open_sink(target, tmp_path / "state", **form)
    sink.recover(None)
    older = sink.write(0, rows(1))
    sink.write(1, rows(2))
    recorded = sink.write(2, rows())
    assert recorded == {"batch": 2}
    sink.write(3, rows(9))
    (Path(target) / "foreign.parquet").write_bytes((next(Path(target).glob("*-0000000000.*"))).read_bytes())
    sink = open_sink(target, tmp_path / "state", **form)
    with refusal("sink.changed", 4, 1):
        sink.recover(older)
    sink.recover(recorded)
    sink.write(3, rows(3))
    assert sorted(pq.read_table(target)["id"].to_pylist()) == [1, 1, 2, 3]
    assert pq.read_table(target)["price"].type == pa.decimal128(15, 2)


def test_json_keeps_digits_types_and_nesting(tmp_path):
    table = pa.table(
        {
            "d": pa.array([Decimal("12345.60"), None], pa.decimal128(15, 2)),
            "at": pa.array(
                [datetime(2024, 1, 1, 10, 0, 0, 5, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")
            ),
            "day": pa.array([date(2024, 1, 1), None]),
            "s": pa.array(
                [{"x": [Decimal("0.10")]}, None], pa.struct([("x", pa.list_(pa.decimal128(5, 2)))])
            ),
            "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
            "f": pa.array([float("nan"), 0.5]),
            "t": pa.array(['say "é"\n', ""]),
            "b": pa.array([b"\x00", None], pa.binary()),
        }
    )
    sink = open_sink(tmp_path / "out.jsonl", tmp_path / "state", table.schema)
    sink.write(0, table)
    assert (tmp_path / "out.jsonl").read_text() == (
        '{"d":12345.60,"at":"2024-01-01T10:00:00.000005Z","day":"2024-01-01","s":{"x":[0.10]},"m":{"k":1},'
        '"f":"NaN","t":"say \\"é\\"\\n","b":"AA=="}\n'
        '{"d":null,"at":null,"day":null,"s":null,"m":[],"f":0.5,"t":"","b":null}\n'
    )
    texts = open_sink(tmp_path / "texts.jsonl", tmp_path / "texts", SCHEMA, decimals="string")
    texts.write(0, rows(1))
    assert (tmp_path / "texts.jsonl").read_text() == '{"id":1,"price":"12345.60"}\n'


def test_csv_quotes_what_needs_it(tmp_path):
    table = pa.table({"a,b": ['x"y', "1,2", "l\nm", "", None], "n": [[1], None, None, None, None]})
    sink = open_sink(tmp_path / "out.csv", tmp_path / "state", table.schema)
    sink.write(0, table)
    assert (tmp_path / "out.csv").read_text() == ('"a,b",n\n"x""y",[1]\n"1,2",\n"l\nm",\n"",\n,\n')


def test_what_cannot_be_written(tmp_path):
    with refusal("sql.unsupported", "avro"):
        open_sink(tmp_path / "x.avro", tmp_path / "state")
    with refusal("source.config", tmp_path / "x"):
        open_sink(tmp_path / "x", tmp_path / "state")
    (tmp_path / "folder").mkdir()
    with refusal("sink", tmp_path / "folder", why="is a folder"):
        open_sink(tmp_path / "folder", tmp_path / "state2", format="csv")
    (tmp_path / "file").write_text("")
    for path, reason in (
        ("file/x.csv", "is not a folder"),
        ("file/x.parquet", "not a directory"),
    ):
        with refusal("sink", tmp_path / path, why=reason):
            open_sink(tmp_path / path, tmp_path / "state3")


def test_the_console_prints_rows(capsys):
    sink = ConsoleSink(ConsoleOptions())
    assert sink.write(3, rows(1)) == {"batch": 3}
    assert capsys.readouterr().out == '{"id":1,"price":12345.60}\n'
    ConsoleSink(ConsoleOptions(format="table")).write(4, rows(1, 22))
    assert capsys.readouterr().out == "id  price\n--  --------\n1   12345.60\n22  12345.60\n"


def test_the_console_marks_rows_that_are_taken_back(capsys):
    changed = rows(1, 2, 3).append_column(WEIGHT, pa.array([-1, 1, 1], pa.int64()))
    ConsoleSink(ConsoleOptions()).write(0, changed)
    assert capsys.readouterr().out == (
        '{"id":1,"price":12345.60,"_weight":-1}\n{"id":2,"price":12345.60}\n{"id":3,"price":12345.60}\n'
    )
    ConsoleSink(ConsoleOptions(format="table")).write(1, changed)
    assert capsys.readouterr().out == (
        "   id  price\n-  --  --------\n-  1   12345.60\n+  2   12345.60\n+  3   12345.60\n"
    )
