"""Every record of a file or a topic is a row or a letter, and a row's values are what Python reads."""

from __future__ import annotations

import gzip
import math
import sys
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from itertools import dropwhile
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "connectors"))
sys.path.insert(0, str(Path(__file__).parent))
from hostile_records import NAMES, SCHEMA, Record, csv_record, json_record

from files_model import open_source
from velostream.engine.bad_rows.data_errors import data_error
from velostream.formats.csv.text import CsvDialect
from velostream.formats.decoder import FormatSettings, decoder_for

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]

PACKED = {
    "": lambda raw: raw,
    ".gz": gzip.compress,
    ".zst": lambda raw: pa.compress(raw, codec="zstd", asbytes=True),
}


def comparable(values):
    return tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in values)


def rows_of(table):
    columns = (table[name].to_pylist() for name in NAMES)
    return [comparable(row) for row in zip(*columns, strict=True)]


def shown(some: Counter) -> list[str]:
    return [repr(one)[:300] for one in some]


def check(records: list[Record], rows: list, letters: list[bytes], extra: int = 0) -> None:
    """Each record is in one place; `extra` letters may be those of records that were not whole yet."""
    unsure = sum(record.either for record in records)
    sure = Counter(comparable(r.values) for r in records if not r.either and r.values is not None)
    found = Counter(rows)
    assert not shown(sure - found), shown(found - sure)
    assert (found - sure).total() <= unsure
    bad = Counter(record.raw for record in records if not record.either and record.values is None)
    assert not shown(bad - Counter(letters)), shown(Counter(letters) - bad)
    if not extra:
        assert len(rows) + len(letters) == len(records)
        assert (Counter(letters) - bad).total() <= unsure, shown(Counter(letters) - bad)


def look(spark, source, clean: bool):
    """Rows and letters at the newest position; the fast way gives the same rows or fails."""
    end = source.latest(None)
    careful = source.frame(spark, None, end, None, careful=True).toArrow()
    good = careful.filter(pa.compute.is_null(careful["_bad"]))
    letters = [bad.raw for bad in source.bad_rows(None, end)]
    fast = outcome(source.frame(spark, None, end, None))
    if fast is None:
        assert not clean
    else:
        assert good.num_rows == careful.num_rows
        assert Counter(rows_of(fast)) == Counter(rows_of(good))
    return rows_of(good), letters


def outcome(frame):
    """What a fast frame gives, None when a record makes it fail."""
    try:
        return frame.toArrow()
    except Exception as exc:
        if data_error(exc):
            return None
        raise


def records_of(rng, form: str, count: int) -> list[Record]:
    made = {
        "csv": lambda token: csv_record(rng, token, ","),
        "tsv": lambda token: csv_record(rng, token, "\t"),
    }.get(form, lambda token: json_record(rng, token))
    return [made(f"t{number}t") for number in range(count)]


def content(rng, form: str, records: list[Record]) -> bytes:
    """A file of these records: line ends of both kinds, blank lines, perhaps none at the end."""
    lines = [record.raw for record in records]
    if form in ("csv", "tsv"):
        lines = [(b"," if form == "csv" else b"\t").join(name.encode() for name in NAMES), *lines]
    parts = [line + rng.choice([b"\n", b"\n", b"\r\n", b"\n\n", b"\r\n\r\n"]) for line in lines]
    if rng.random() < 0.5 and parts:
        parts[-1] = parts[-1].rstrip(b"\r\n")
    return b"".join(parts) if len(parts) > 1 or form == "jsonl" else parts[0].rstrip() + b"\n"


def one_line(records: list[Record]) -> list[Record]:
    """Records that do not begin or end like something else when they stand in a line of their own."""
    kept = [record for record in records if b"\n" not in record.raw and record.raw.strip()]
    # What stands before the first record of a file is the file's byte order mark, and no part of the record.
    return list(dropwhile(lambda record: record.raw.startswith((BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE)), kept))


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_files(spark, tmp_path, rng, rounds, form):
    for number in range(rounds(4, 100)):
        packed = sorted(PACKED)[number % 3]
        records = records_of(rng, form, rng.choice([1, 5]) if number == 3 else 100)
        records = one_line(records) if form == "jsonl" else records
        path = tmp_path / f"x{number}.{form}{packed}"
        path.write_bytes(PACKED[packed](content(rng, form, records)))
        source = open_source(str(path), tmp_path / f"spool{number}", schema=SCHEMA)
        check(records, *look(spark, source, all(r.values for r in records)))


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_files_that_grow(spark, tmp_path, rng, rounds, form):
    for number in range(rounds(1, 40)):
        records = records_of(rng, form, 60)
        records = one_line(records) if form == "jsonl" else records
        raw = content(rng, form, records)
        path = tmp_path / f"x{number}.{form}"
        path.touch()
        impatient, patient = (tmp_path / f"{name}{number}" for name in ("impatient", "patient"))
        sources = [
            open_source(str(path), impatient, schema=SCHEMA),
            open_source(str(path), patient, schema=SCHEMA, file_debounce="1h"),
        ]
        cuts = sorted(rng.randrange(len(raw)) for _ in range(6))
        for begin, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
            with path.open("ab") as out:
                out.write(raw[begin:end])
            for source in sources:
                source.latest(None)
        check(records, *look(spark, sources[0], clean=False), extra=1)
        # Whoever waits until a file is quiet sees whole records only.
        check(records, *look(spark, open_source(str(path), patient, schema=SCHEMA), clean=False))


def test_documents(spark, tmp_path, rng, rounds):
    for number in range(rounds(3, 100)):
        packed = sorted(PACKED)[number % 3]
        records = [r for r in records_of(rng, "json", 80) if is_element(r.raw)]
        raw = b"[" + b",\n".join(record.raw for record in records) + b"]"
        path = tmp_path / f"x{number}.json{packed}"
        path.write_bytes(PACKED[packed](raw))
        source = open_source(str(path), tmp_path / f"spool{number}", schema=SCHEMA)
        stripped = [Record(r.raw.strip(), r.values, r.either) for r in records]
        check(stripped, *look(spark, source, clean=False))


def is_element(raw: bytes) -> bool:
    """Whether a record leaves the array around it as it is."""
    import json

    try:
        json.loads(raw.decode(errors="replace"))
    except (ValueError, RecursionError):
        return False
    return not raw.startswith(b"\xef")


@pytest.mark.parametrize("form", ["csv", "json"])
def test_records_of_topics(spark, rng, rounds, form):
    records = records_of(rng, form, rounds(300, 5000))
    settings = FormatSettings(names=NAMES, dialect=CsvDialect(header=False))
    decoder = decoder_for(form, settings)
    table = pa.table(
        {
            "record": pa.array([r.raw for r in records], pa.binary()),
            "_offset": pa.array(range(len(records)), pa.int64()),
        }
    )
    frame = spark.createDataFrame(table)
    found = decoder.frame(frame, list(SCHEMA), ["_offset"], careful=True).toArrow().sort_by("_offset")
    assert found["_offset"].to_pylist() == list(range(len(records)))
    good = [bad is None for bad in found["_bad"].to_pylist()]
    for record, row, is_good in zip(records, rows_of(found), good, strict=True):
        if record.either:
            continue
        assert is_good == (record.values is not None), record.raw[:300]
        assert record.values is None or row == comparable(record.values)
    # The fast way reads what is sound as the careful one does, and refuses each other record by itself.
    sound = [n for n, is_good in enumerate(good) if is_good]
    one = decoder.frame(frame, list(SCHEMA), ["_offset"], careful=False)
    bad = [n for n, is_good in enumerate(good) if not is_good]
    for number in rng.sample(bad, min(10, len(bad))):
        with pytest.raises(Exception, match=r"MALFORMED|VELOSTREAM_BAD_ROW"):
            one.where(f"_offset = {number}").toArrow()
    fast = outcome(one.where(f"_offset IN ({', '.join(map(str, sound))})"))
    if fast is not None:
        expected = [row for row, is_good in zip(rows_of(found), good, strict=True) if is_good]
        assert rows_of(fast.sort_by("_offset")) == expected
