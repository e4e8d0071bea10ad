"""What a file source makes of what it finds, and what it says when there is nothing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from files_model import keys, open_source, reader_of
from refusals import refusal
from velostream.errors import SourceMissingError
from velostream.formats import compression as encodings


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"", []),
        (b"a,b\n", []),
        (b"a,b", []),
        (b"a,b\n1,2", ["1"]),
        (b"a,b\r\n1,2\r\n3,4\r\n", ["1", "3"]),
        (b"a,b\n1,2\r\n3,4\n", ["1", "3"]),
        (b"\xef\xbb\xbfa,b\n1,2\n", ["1"]),
        ("a,b\n1,é\n".encode("utf-16"), ["1"]),
        (b"a,b\n\n1,2\n\n\n3,4\n\n", ["1", "3"]),
        (b'a,b\n"x\ny",2\n3,4\n', ["3", "x\ny"]),
        (b'a,b\n5" pipe,2\n3,4\n', ['5" pipe', "3"]),
        (b'a,b\n1,"open\n3,4\n', ["3"]),
        (b"b,a\n2,1\n", ["1"]),
    ],
)
def test_contents(tmp_path, content, rows):
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    assert keys(reader_of(path, tmp_path, once=True).settle()) == sorted(rows)


HEADED = [
    (b"a,b\n1,\xff\n2,\xfe\n3,\xfd\n4,ok", ["4"], [b"1,\xff", b"2,\xfe", b"3,\xfd"]),
    (b"a,\xff\n1,x\n2,y\n", ["1", "2"], [b"a,\xff"]),
    (b"\n\r\na,\xff\n\xff,x\n2,y\n", ["2"], [b"a,\xff", b"\xff,x"]),
    (b'a,"b\n1,x\n2,y\n', ["1", "2"], [b'a,"b']),
    (b"a,b\r1,x\r2,y\r", [], [b"a,b\r1,x\r2,y"]),
    (b'a,b\n1,x\n2,"y', ["1"], [b'2,"y']),
    (b'a,b\n1,"x\n2,y\n3,z\n', ["2", "3"], [b'1,"x']),
    (b'a,b\r\n"1",x\r', ["1"], []),
    (
        "a,b\n1,x\ud800\n2,y\n".encode("utf-16", "surrogatepass"),
        ["2"],
        ["1,x\ud800".encode("utf-8", "surrogatepass")],
    ),
]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize(("content", "rows", "letters"), HEADED)
def test_every_line_is_the_header_or_a_row_or_a_letter(tmp_path, content, rows, letters, suffix):
    path = tmp_path / f"x.csv{suffix}"
    path.write_bytes(packed(content, suffix))
    reader = reader_of(path, tmp_path, once=not suffix)
    assert keys(reader.settle()) == rows
    assert sorted(bad.raw for bad in reader.bad) == sorted(letters)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_without_a_header_the_first_line_may_be_bad(tmp_path, suffix):
    path = tmp_path / f"x.csv{suffix}"
    path.write_bytes(packed(b"\xff,1\nx,2\n\xfe,3\n", suffix))
    reader = reader_of(path, tmp_path, once=True, header="false")
    assert keys(reader.settle()) == ["x"]
    assert [bad.raw for bad in reader.bad] == [b"\xff,1", b"\xfe,3"]


@pytest.mark.parametrize(
    ("content", "rows", "letters"),
    [
        (b'[{"a": "1", "b": "\xff"}, {"a": "2"}]', ["2"], [b'{"a": "1", "b": "\xff"}']),
        (b'[{"a": "1"}, {"a": "\\ud800"}, 3]', ["1"], [b'{"a": "\\ud800"}', b"3"]),
        (b'{"a": "1", bad}\n{"a": "2"}\n{"a": "3"}\n', ["2", "3"], [b'{"a": "1", bad}']),
        (b'{"a": "1"\n{"a": "2"}\n', ["2"], [b'{"a": "1"']),
        (b'{\n"a": "1",\n"b": \n}', [], [b'{ "a": "1", "b":  }']),
    ],
)
def test_every_element_of_a_document_is_a_row_or_a_letter(tmp_path, content, rows, letters):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    reader = reader_of(path, tmp_path, once=True)
    assert keys(reader.settle()) == rows
    assert sorted(bad.raw for bad in reader.bad) == sorted(letters)


def packed(content: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(content)
    return pa.compress(content, codec="zstd", asbytes=True) if suffix == ".zst" else content


@pytest.mark.parametrize("suffix", [".csv.gz", ".csv.zst"])
def test_compressed_files_grow_and_change(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"

    def pack(text: str) -> bytes:
        if suffix.endswith("gz"):
            return gzip.compress(text.encode())
        return pa.compress(text.encode(), codec="zstd", asbytes=True)

    path.write_bytes(pack("a,b\n1,2\n3,4\n"))
    reader = reader_of(path, tmp_path)
    assert keys(reader.settle()) == ["1", "3"]
    if suffix.endswith("gz"):
        with path.open("ab") as out:
            out.write(pack("5,6\n"))
        first = reader.offset
        assert keys(reader.settle()) == ["1", "3", "5"]
        assert [
            (s.rows, w) for s, w in reader.source.spool.changes(first["spool"], reader.offset["spool"])
        ] == [(1, 1)]
    path.write_bytes(pack("a,b\n1,2\n"))
    assert keys(reader.settle()) == ["1"]
    path.write_bytes(pack("a,b\n1,2\n3,3\n")[:-6])
    assert keys(reader.settle()) == ["1"]
    assert "damaged or unfinished" in reader.bad[-1].reason
    path.write_bytes(pack("a,b\n1,2\n3,3\n"))
    assert keys(reader.settle()) == ["1", "3"]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b'{"a": "1"}\n{"a": "2", "b": "x"}\n', ["1", "2"]),
        (b'[{"a": "1"}, {"a": "2",\n "b": "x,]"}]', ["1", "2"]),
        (b'{\n  "a": "1",\n  "b": "x"\n}\n', ["1"]),
        (b'{"a": "1"}', ["1"]),
        (b"[]", []),
        (b"  \n", []),
    ],
)
def test_json_files(tmp_path, content, rows):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    assert keys(reader_of(path, tmp_path, once=True).settle()) == rows


def test_a_json_document_changes_by_its_elements(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('[{"a": "1"}, {"a": "2"}, {"a": "3"}]')
    reader = reader_of(path, tmp_path)
    reader.settle()
    first = reader.offset
    path.write_text('[{"a": "1"},\n {"a": "9"}, {"a": "3"}]')
    assert keys(reader.settle()) == ["1", "3", "9"]
    changes = reader.source.spool.changes(first["spool"], reader.offset["spool"])
    assert sorted((segment.rows, weight) for segment, weight in changes) == [(1, -1), (1, 1)]


def test_a_folder_of_mixed_names(tmp_path):
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    (folder / "x.csv").write_text("a,b\n1,2\n")
    (folder / "deep" / "y.jsonl").write_text('{"a": "3"}\n')
    (folder / ".hidden.csv").write_text("a,b\n8,8\n")
    (folder / "z.csv.tmp").write_text("a,b\n9,9\n")
    (folder / "readme.txt").write_text("nothing to see")
    assert keys(reader_of(f"{folder}/", tmp_path).settle()) == ["1", "3"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.csv", ["a1.csv", "a2.csv"]),
        ("a?.csv", ["a1.csv", "a2.csv"]),
        ("a[!1].csv", ["a2.csv"]),
        ("**/*.csv", ["a1.csv", "a2.csv", "a3.csv"]),
        ("*/a3.csv", ["a3.csv"]),
        ("a{1,3}.csv", ["a1.csv"]),
        ("**/a{1,3}.{csv,json}", ["a1.csv", "a3.csv"]),
    ],
)
def test_patterns(tmp_path, pattern, names):
    from velostream.connectors.file.folder import Folder

    (tmp_path / "sub").mkdir()
    for name in ("a1.csv", "a2.csv", "b.txt", "sub/a3.csv"):
        (tmp_path / name).write_text("")
    assert [Path(p).name for p in Folder(f"{tmp_path}/{pattern}").look().files] == names


def test_a_missing_file_says_what_to_do(tmp_path):
    (tmp_path / "orders.csv").write_text("")
    with pytest.raises(SourceMissingError) as caught:
        open_source(str(tmp_path / "order.csv"), tmp_path / "spool").check()
    assert str(caught.value).splitlines() == [
        f'file "{tmp_path}/order.csv" does not exist',
        "  1. check the path",
        '  2. wait for it:         WITH ("file.wait.timeout" = "30s")',
        '  3. start with none:     WITH ("file.create.empty" = "true")',
        f'  4. did you mean "{tmp_path}/orders.csv"?',
    ]


def test_a_pattern_without_match_says_where_it_looked(tmp_path):
    (tmp_path / "orders.csv").write_text("")
    with pytest.raises(SourceMissingError) as caught:
        open_source(str(tmp_path / "app-*.json"), tmp_path / "spool").check()
    assert str(caught.value).splitlines() == [
        f'no file matches "{tmp_path}/app-*.json"',
        f'  1. check the pattern: looked in "{tmp_path}", which holds orders.csv, spool',
        '  2. wait for a match:    WITH ("file.wait.timeout" = "30s")',
    ]


def test_create_empty_and_unknown_formats(tmp_path):
    path = tmp_path / "deep" / "x.csv"
    source = open_source(str(path), tmp_path / "spool", file_create_empty="true")
    source.check()
    assert path.read_bytes() == b""
    with refusal("source.empty", why="no row yet"):
        open_source(str(path), tmp_path / "other", schema=None).discover()
    (tmp_path / "x.what").write_text("a")
    with refusal("source.config", tmp_path / "x.what"):
        open_source(str(tmp_path / "x.what"), tmp_path / "third").check()


@pytest.mark.parametrize("name", ["x.csv.gz", "x.json"])
def test_a_file_too_large_to_be_read_whole_says_so(tmp_path, monkeypatch, name):
    monkeypatch.setattr(encodings, "WHOLE_BYTES", 1 << 20)
    path = tmp_path / name
    small, large = [{"a": "1", "b": "2"}], [{"a": "1", "b": "2" * 2_000_000}]

    def write(rows):
        csv = "a,b\n" + "".join(f"{row['a']},{row['b']}\n" for row in rows)
        content = gzip.compress(csv.encode()) if name.endswith("gz") else json.dumps(rows).encode()
        path.write_bytes(content)

    write(small)
    reader = reader_of(path, tmp_path)
    assert keys(reader.settle()) == ["1"]
    write(large)
    assert keys(reader.settle()) == ["1"]
    assert [bad.reason.partition(":")[0] for bad in reader.bad] == ["it is too large"]
    write([*small, *small])
    assert keys(reader.settle()) == ["1", "1"]
