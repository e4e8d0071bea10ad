"""Records and files that are made to fill the memory or to keep the processor busy."""

from __future__ import annotations

import time

import pytest

from velostream.connectors.file.layout import layout_of
from velostream.connectors.file.options import FileOptions
from velostream.formats.inference import infer_csv, infer_json

N = 200_000
HOSTILE = [
    b'{"' + b'\\"' * N,
    b"{'" + b"\\'" * N,
    b'"' + b'\\"' * N + b"\\",
    b'{"a":"' + b"0" * N,
    b'{"a":' + b"1" * N + b"}",
    b'{"a":' + b"1" * N + b".5}",
    b'{"a":"' + b"\\u0031" * N + b'"}',
    b'{"a":' * 100 + b"1" + b"}" * 100,
    b"[" * N,
    b"{" * N,
    b'"' * N,
    b'"' * (N + 1),
    b"\\" * N,
    b"1" * N + b"x",
    b"1." * N,
    b"1e" * N,
    b"-" * N,
    b"," * N,
    b'","' * N,
    b" " * N,
    b"\r" * N,
]


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl"])
@pytest.mark.parametrize("record", HOSTILE, ids=lambda record: repr(record[:12]))
def test_the_time_for_a_record_follows_its_length(name: str, record: bytes) -> None:
    layout = layout_of(name, FileOptions())
    assert layout is not None
    began = time.process_time()
    records = layout.split(record + b"\n", final=True).as_list()
    if name == "x.csv":
        infer_csv(["a"], [[each.decode("latin-1")] for each in records[:4000]])
    else:
        infer_json(records[:4000])
    # What grows with the square of the length takes minutes.
    assert time.process_time() - began < 5
