"""Records and files that are made to fill the memory or to keep the processor busy."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import resource
import time
import zlib

import pyarrow as pa
import pytest

from velostream.connectors.file.options import FileOptions
from velostream.connectors.files.read.binary import UNREADABLE
from velostream.connectors.files.watch.layout import layout_of
from velostream.errors import SourceConfigError
from velostream.formats.avro.files import avro_batches, avro_schema
from velostream.formats.columns.inference import infer_csv, infer_json

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


# --- Avro files -----------------------------------------------------------------------------------------


def container(schema: object, blocks: list[tuple[int, bytes]], codec: str = "null") -> io.BytesIO:
    """A file with what blocks claim."""

    def number(value: int) -> bytes:
        value, out = (value << 1) ^ (value >> 63), bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*out, value])

    def sized(data: bytes) -> bytes:
        return number(len(data)) + data

    sync = b"s" * 16
    head = sized(b"avro.schema") + sized(json.dumps(schema).encode())
    head += sized(b"avro.codec") + sized(codec.encode())
    body = b"".join(number(count) + sized(data) + sync for count, data in blocks)
    return io.BytesIO(b"Obj\x01" + number(2) + head + number(0) + sync + body)


def record(kind: object) -> dict[str, object]:
    return {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}


BILLION_ITEMS = b"\x80\xa8\xd6\xb9\x07\x00"
EMPTY = {"type": "record", "name": "e", "fields": [{"name": "n", "type": "null"}]}
DEFLATED = zlib.compressobj(9, wbits=-15)
GIGABYTE = b"".join(DEFLATED.compress(bytes(1 << 20)) for _ in range(1 << 10)) + DEFLATED.flush()
AVRO = {
    "nulls in an array": container(record({"type": "array", "items": "null"}), [(1, BILLION_ITEMS)]),
    "empty records in an array": container(record({"type": "array", "items": EMPTY}), [(1, BILLION_ITEMS)]),
    "nothing in an array": container(
        record({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}), [(1, BILLION_ITEMS)]
    ),
    "records without bytes": container(EMPTY, [(10**9, b"")]),
    "records that are not there": container(record("long"), [(10**9, b"\x02")]),
    "a number below zero": container(record("long"), [(-1, b"\x02")]),
    "a gigabyte of zeros": container(record("bytes"), [(1, GIGABYTE)], "deflate"),
    "a text longer than the file": container(record("string"), [(1, b"\xfe\xff\xff\xff\x0f")]),
    "an array longer than the file": container(
        record({"type": "array", "items": "long"}), [(1, BILLION_ITEMS)]
    ),
    "what is not compressed": container(record("long"), [(1, b"\x02")], "snappy"),
    "an unknown codec": container(record("long"), [(1, b"\x02")], "rot13"),
    "a schema that refers to itself": container(record("r"), [(1, b"\x02")]),
}


@pytest.mark.parametrize("name", AVRO)
def test_an_avro_file_that_claims_too_much_is_refused(name: str) -> None:
    file = AVRO[name]
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((*UNREADABLE, SourceConfigError)):  # noqa: PT012 - either of the two
        avro_schema(file)
        file.seek(0)
        list(avro_batches(file))
    assert time.process_time() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 700_000  # KB


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "zstandard", "snappy"])
def test_avro_files_of_every_codec_are_read(codec: str) -> None:
    data = b"".join(bytes([2 * n]) for n in range(50))
    packed = {
        "null": lambda: data,
        "deflate": lambda: zlib.compress(data)[2:-4],
        "bzip2": lambda: bz2.compress(data),
        "xz": lambda: lzma.compress(data),
        "zstandard": lambda: pa.compress(data, codec="zstd", asbytes=True),
        "snappy": lambda: (
            pa.compress(data, codec="snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big")
        ),
    }[codec]()
    file = container(record("long"), [(50, packed), (50, packed)], codec)
    assert avro_schema(file) == (pa.schema([("a", pa.int64())]), 100)
    file.seek(0)
    assert pa.Table.from_batches(avro_batches(file))["a"].to_pylist() == [*range(50), *range(50)]
