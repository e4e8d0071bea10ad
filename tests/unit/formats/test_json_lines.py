"""A JSON record is one object; what follows it on its line is never lost silently."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from files_model import Reader
from velostream.formats.columns.inference import infer_json
from velostream.formats.json import lines as json_lines
from velostream.formats.json.lines import TAIL, has_tail, set_tails_aside, unknown_records
from velostream.formats.records import split_records

A = pa.schema([("a", pa.int64())])
TAILED = ['{"a":1}{"a":2}', '{"a":1} junk', '{"a":1}}', '{"a":1},', '{"a":1} ,0,{"a":2}', '{"a":1}\x0b']
WHOLE = [
    '{"a":1}',
    ' {"a":1} \t',
    '{"a":"}{"}',
    '{"a":"\\"}x"}',
    '{"a":[1,{"b":2}]}',
    '{"a":NaN}',
]
NEITHER = ['{"a":1', "1 2", "[1] x", '"x" y', "nonsense", '{"a":[1', "2]}"]


def tails(lines: list[str]) -> list[str]:
    records = set_tails_aside(split_records("".join(f"{line}\n" for line in lines).encode(), final=True))
    assert {bad.reason for bad in records.bad} <= {TAIL}
    assert len(records.as_list()) == records.rows == len(records.positions())
    return [bad.raw.decode() for bad in records.bad]


@pytest.mark.parametrize("line", TAILED)
def test_a_tail_is_found(line):
    assert has_tail(line.encode())
    assert tails(['{"a":0}', line, '{"a":3}']) == [line]


@pytest.mark.parametrize("line", WHOLE + NEITHER)
def test_other_records_are_left_to_decoding(line):
    assert not has_tail(line.encode())
    assert tails(['{"a":0}', line, '{"a":3}']) == []


@given(st.lists(st.sampled_from(TAILED + WHOLE + NEITHER), max_size=8), st.integers(1, 60))
def test_records_are_judged_one_by_one(lines, portion):
    kept, json_lines.PORTION = json_lines.PORTION, portion
    try:
        assert tails(lines) == [line for line in lines if line in TAILED]
    finally:
        json_lines.PORTION = kept


objects = st.dictionaries(
    st.text(max_size=3), st.recursive(st.text(max_size=4) | st.integers(), st.lists), max_size=3
)


@given(objects, st.text(st.sampled_from(' {}[]",\\1'), max_size=4), st.booleans())
def test_exactly_what_follows_the_object_counts(value, rest, ascii_only):
    line = json.dumps(value, ensure_ascii=ascii_only).replace("\x7f", "")
    assert has_tail((line + rest).encode("utf-8", "surrogatepass")) == bool(rest.strip(" "))


@pytest.mark.parametrize("name", ["x.jsonl", "x.json"])
def test_a_line_with_a_tail_is_a_bad_row(tmp_path, name):
    path = tmp_path / name
    path.write_text('{"a":1} {"a":9}\n{"a":2}\n{"a":3}}\n{"a":4}\n')
    reader = Reader(str(path), tmp_path / "spool", schema=A)
    assert sorted(reader.settle()) == [(2,), (4,)]
    assert [(bad.raw, bad.offset, bad.reason) for bad in reader.bad] == [
        (b'{"a":1} {"a":9}', "0", TAIL),
        (b'{"a":3}}', "24", TAIL),
    ]
    assert reader.source.has_bad_rows(None, reader.offset)
    with path.open("a") as out:
        out.write('{"a":5}')
    assert sorted(reader.settle()) == [(2,), (4,), (5,)]
    with path.open("a") as out:
        out.write(' {"a":6}')
    assert sorted(reader.settle()) == [(2,), (4,)]
    assert len(reader.bad) == 3
    assert reader.bad[-1].raw == b'{"a":5} {"a":6}'
    with path.open("a") as out:
        out.write('\n{"a":7}\n')
    assert sorted(reader.settle()) == [(2,), (4,), (7,)]
    assert len(reader.bad) == 3


def test_a_document_with_a_tail_is_a_bad_row(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{\n"a":1\n}\n{\n"a":2\n}\n')
    reader = Reader(str(path), tmp_path / "spool", schema=A)
    assert not reader.settle()
    assert [bad.reason for bad in reader.bad] == [TAIL]


@given(st.lists(st.sampled_from(WHOLE + NEITHER), max_size=6), st.integers(1, 60))
def test_records_without_an_unknown_field_are_passed_over(lines, portion):
    kept, json_lines.PORTION = json_lines.PORTION, portion
    try:
        text = "".join(f"{line}\n" for line in [*lines, '{"a":1,"New":2}', *lines]).encode()
        found = list(unknown_records(text, b"\n", A))
        assert b'{"a":1,"New":2}' in found
        assert not list(unknown_records(b'{"a":1}\n{"A":2}\n{}\n', b"\n", A))
        assert infer_json(found).names[-1] == "New"
    finally:
        json_lines.PORTION = kept


def test_what_is_no_json_names_no_field(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a":1.5}\n')
    reader = Reader(str(path), tmp_path / "spool", schema=None)
    reader.settle()
    with path.open("a") as out:
        out.write('{"a":NaN,"b":1}\n{"a":1,"c":"\\ud800"}\n')
    first, last = reader.offset, reader.source.latest(reader.offset)
    assert not reader.source.new_columns(first, last)
    reasons = [bad.reason for bad in reader.source.bad_rows(first, last)]
    assert reasons == ["not JSON: NaN is no JSON number", "half a surrogate pair, which is no character"]


def test_a_field_within_a_field_may_be_unknown():
    at = pa.struct([("city", pa.string()), ("geo", pa.struct([("lat", pa.int64())]))])
    known = pa.schema([("a", pa.int64()), ("at", at)])
    fitting = b'{"a":1,"at":{"city":"x","Geo":{"lat":1}}}\n{"at":null}\n{"at":{"geo":7}}\n'
    assert not list(unknown_records(fitting, b"\n", known))
    for record in (b'{"at":{"zip":1}}', b'{"at":{"geo":{"lat":1,"lon":2}}}'):
        assert record in list(unknown_records(fitting + record + b"\n", b"\n", known))
