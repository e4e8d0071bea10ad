"""Files that would fill the memory are dead letters that name them."""

from __future__ import annotations

import gzip

import pytest

from files_model import keys, reader_of
from velostream.connectors.files.watch import growth
from velostream.formats import compression as encodings


@pytest.mark.parametrize(
    ("name", "head", "filling", "reason"),
    [
        ("x.csv.gz", b"a,b\n1,2\n", b"0", "the record at byte 8 is longer than 1 MiB"),
        ("x.csv.gz", b'a,b\n1,2\n1,"', b"0", "the record at byte 8 is longer than 1 MiB"),
        ("x.csv.gz", b"a,b\n1,2\n", b"0\n", "it is too large"),
        ("x.jsonl.gz", b'{"a":1}\n{"a":"', b"0", "the record at byte 8 is longer than 1 MiB"),
        ("x.json.gz", b'[{"a":1},{"a":"', b"0", "it is too large"),
        ("x.csv", b"a,b\n1,2\n1,", b"0", "the record at byte 8 is longer than 1 MiB"),
        ("x.csv", b'a,b\n1,2\n1,"', b"0", "the record at byte 8 is longer than 1 MiB"),
        ("x.jsonl", b'{"a":"1"}\n{"a":"', b"0", "the record at byte 10 is longer than 1 MiB"),
    ],
)
def test_a_file_that_would_fill_the_memory_is_a_letter(tmp_path, monkeypatch, name, head, filling, reason):
    for module in (encodings, growth):
        monkeypatch.setattr(module, "LONGEST_RECORD", 1 << 20)
    monkeypatch.setattr(encodings, "WHOLE_BYTES", 16 << 20)
    packed = name.endswith("gz")

    def write(size: int) -> None:
        content = head + filling * (size // len(filling))
        path.write_bytes(gzip.compress(content, 1) if packed else content)

    path = tmp_path / name
    write(6 << 20)
    reader = reader_of(path, tmp_path, buffer_size="65536")
    # Lines that stand before are rows of a file that is read line by line.
    assert keys(reader.settle()) == ([] if packed else ["1"])
    assert [bad.reason.partition(":")[0] for bad in reader.bad] == [reason]
    assert not reader.step()
    reader.reopen()
    assert not reader.step()
    path.write_bytes(gzip.compress(b"a,b\n1,2\n") if packed else b"a,b\n1,2\n")
    if ".csv" in name:
        assert keys(reader.settle()) == ["1"]
