"""The short ways through plain CSV and JSON give what the careful way gives, or fail where it marks a row."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "connectors"))
from files_model import open_source

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("a", pa.string()), ("n", pa.int64()), ("d", pa.decimal128(12, 3)), ("z", pa.string())])
CHARACTERS = "abcXYZ019 _-+.,;:|/\\'`~!?*$^()[]{}<>@#%&=\té漢😀"


def both(spark, source, columns=None):
    end = source.latest(None)
    assert all(segment.plain for segment in source.spool.live.values())
    careful = source.frame(spark, None, end, columns, careful=True)
    assert careful.where("_bad IS NOT NULL").count() == 0
    fast = source.frame(spark, None, end, columns)
    return sorted_rows(fast), sorted_rows(careful.drop("_bad"))


def sorted_rows(frame):
    return sorted((tuple(row.values()) for row in frame.toArrow().to_pylist()), key=repr)


@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t", "^", " ", "/", ".", "x"])
@pytest.mark.parametrize("null", ["", "NA"])
def test_plain_csv(spark, tmp_path, rng, delimiter, null):
    letters = [c for c in CHARACTERS if c != delimiter]

    def text() -> str:
        return rng.choice(["", null, "".join(rng.choices(letters, k=rng.randrange(1, 12)))])

    def number() -> str:
        sign = "" if delimiter == "-" else rng.choice(["", "-"])
        return rng.choice(["", sign + str(rng.randrange(10**6))])

    def decimal() -> str:
        return number() if delimiter == "." else rng.choice(["", "1.5", "-0.125", "7", "123456789.001", ".5"])

    rows = [delimiter.join([f"k{n}", text(), number(), decimal(), text()]) for n in range(300)]
    path = tmp_path / "x.csv"
    header = delimiter.join(["k", "a", "n", "d", "z"])
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    options = {"delimiter": delimiter, "null": null}
    source = open_source(str(path), tmp_path / "spool", schema=SCHEMA, **options)
    fast, careful = both(spark, source)
    assert fast == careful
    assert len(fast) == 300


@pytest.mark.parametrize("line", ["1,2", "1,2,3,4,5", "x,y,z,q", "1,1,0.0001,q"])
def test_a_bad_csv_record_fails(spark, tmp_path, line):
    path = tmp_path / "x.csv"
    path.write_text(f"a,n,d,z\nfine,1,1.5,z\n{line}\n")
    source = open_source(str(path), tmp_path / "spool", schema=SCHEMA)
    with pytest.raises(Exception, match="VELOSTREAM_BAD_ROW"):
        source.frame(spark, None, source.latest(None), None).toArrow()


def test_json_objects(spark, tmp_path, rng):
    def value(kind: str) -> object:
        if rng.random() < 0.2:
            return None
        if kind == "text":
            return "".join(rng.choices(CHARACTERS + '"\n', k=rng.randrange(12)))
        return rng.randrange(-(10**6), 10**6) if kind == "integer" else round(rng.uniform(-1e4, 1e4), 3)

    rows = [
        {"a": value("text"), "n": value("integer"), "d": value("decimal"), "z": value("text"), "more": [1]}
        for _ in range(300)
    ]
    path = tmp_path / "x.jsonl"
    texts = [json.dumps(row, ensure_ascii=rng.random() < 0.5) for row in rows]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    source = open_source(str(path), tmp_path / "spool", schema=SCHEMA)
    fast, careful = both(spark, source)
    assert fast == careful
    assert len(fast) == 300
    placed = both(spark, open_source(str(path), tmp_path / "again", schema=SCHEMA), ["a", "d"])
    assert placed[0] == placed[1]


@pytest.mark.parametrize("line", ['{"a": "x", "n": "y"}', '{"a": 1', '{"d": 0.0001}'])
def test_a_bad_json_record_fails(spark, tmp_path, line):
    path = tmp_path / "x.jsonl"
    path.write_text(f'{{"a": "fine", "n": 1, "d": 1.5}}\n{line}\n')
    source = open_source(str(path), tmp_path / "spool", schema=SCHEMA)
    with pytest.raises(Exception, match=r"MALFORMED_RECORD|VELOSTREAM_BAD_ROW"):
        source.frame(spark, None, source.latest(None), None).toArrow()


def test_arrays_in_the_place_of_objects_are_not_taken_for_rows(spark, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": "1"}\n[{"a": "2"}, {"a": "3"}]\n')
    source = open_source(str(path), tmp_path / "spool", schema=SCHEMA)
    end = source.latest(None)
    assert not any(segment.plain for segment in source.spool.live.values())
    good = source.frame(spark, None, end, ["a"], careful=True).where("_bad IS NULL").toArrow()
    assert good["a"].to_pylist() == ["1"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("plain.csv", ["a,n,d,z", "x,1,1.5,z", "y,?,1.5,z", "short"]),
        ("quoted.csv", ["a,n,d,z", '"x",1,1.5,z', '"y",?,1.5,z', '"z",1']),
        ("objects.jsonl", ['{"a": "x", "n": 1}', '{"a": "y", "n": "?"}', '{"a": "z", "n": 1.5}']),
        ("broken.jsonl", ['{"a": "x", "n": 1}', '{"a": "y", "n": 1', '[{"a": "z"}]']),
    ],
)
@pytest.mark.parametrize("query", ["SELECT COUNT(*) FROM t", "SELECT a FROM (SELECT a, n FROM t)"])
def test_a_bad_record_fails_whatever_the_query_makes_of_it(spark, tmp_path, name, lines, query):
    path = tmp_path / name
    for bad in lines[-2:]:
        path.write_text("\n".join([*lines[:-2], bad]) + "\n")
        source = open_source(str(path), tmp_path / f"spool{len(bad)}", schema=SCHEMA)
        end = source.latest(None)
        careful = source.frame(spark, None, end, ["a", "n"], careful=True)
        assert careful.where("_bad IS NOT NULL").count() == 1
        source.frame(spark, None, end, ["a", "n"]).createOrReplaceTempView("t")
        with pytest.raises(Exception, match=r"MALFORMED|BAD_ROW"):
            spark.sql(query).toArrow()
