"""JSON records: the fast way gives what the careful way gives, or fails; both agree with Python."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from velostream.formats.decoder import decoder_for

if TYPE_CHECKING:
    import random

pytestmark = pytest.mark.spark

REFUSED = r"MALFORMED_RECORD|VELOSTREAM_BAD_ROW"
MONEY = pa.decimal128(18, 2)
FIELDS = [
    pa.field("a", pa.string()),
    pa.field("n", pa.int64()),
    pa.field("d", MONEY),
    pa.field("w", pa.decimal128(38, 10)),
    pa.field("f", pa.float64()),
    pa.field("t", pa.timestamp("us", tz="UTC")),
    pa.field("on", pa.bool_()),
    pa.field("s", pa.struct([pa.field("x", MONEY), pa.field("y", pa.string())])),
    pa.field("l", pa.list_(MONEY)),
    pa.field("m", pa.map_(pa.string(), MONEY)),
]
AMOUNT = [pa.field("d", MONEY)]


def records_frame(spark, records):
    table = pa.table(
        {
            "record": pa.array(records, pa.binary()),
            "_offset": pa.array(range(len(records)), pa.int64()),
        }
    )
    return spark.createDataFrame(table)


def careful(spark, records, fields=FIELDS, form="json"):
    """Rows by offset, None for bad ones."""
    frame = decoder_for(form).frame(records_frame(spark, records), fields, ["_offset"], careful=True)
    rows = {row.pop("_offset"): row for row in frame.toArrow().to_pylist()}
    return [None if (row := rows[n]).pop("_bad") is not None else row for n in range(len(records))]


def fast(spark, records, fields=FIELDS, form="json"):
    frame = decoder_for(form).frame(records_frame(spark, records), fields, ["_offset"], careful=False)
    rows = {row.pop("_offset"): row for row in frame.toArrow().to_pylist()}
    return [rows[n] for n in range(len(records))]


BAD = {
    "not an object": b"[1]",
    "a number": b"1",
    "null": b"null",
    "a text": b'"x"',
    "empty": b"",
    "blank": b"  ",
    "cut off": b'{"n": 12',
    "cut off in a number of digits": b'{"d": 1.25',
    "two objects": b'{"n": 1}{"n": 2}',
    "two objects, divided": b'{"n": 1} , {"n": 2}',
    "text behind": b'{"n": 1} x',
    "a brace behind": b'{"n": 1}}',
    "a bracket behind": b'{"n": 1}]',
    "a field behind": b'{"n": 1}, "d": 2}',
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "overlong UTF-8": b'{"a": "\xc0\xaf"}',
    "a surrogate in UTF-8": b'{"a": "\xed\xa0\x80"}',
    "single quotes": b"{'n': 1}",
    "a text in an integer": b'{"n": "x"}',
    "a fraction in an integer": b'{"n": 1.5}',
    "too large an integer": b'{"n": 9223372036854775808}',
    "cut digits": b'{"d": 1.239}',
    "cut digits in a text": b'{"d": "1.239"}',
    "digits behind zeros": b'{"d": 1.2300000000000000000000000000001}',
    "digits behind ten zeros": b'{"d": 1.2300000000001}',
    "digits behind nines": b'{"d": 1.22999999999999999999999999999999999}',
    "a tiny number": b'{"d": 1e-30}',
    "a tiny number, written out": b'{"d": 0.' + b"0" * 50 + b"1}",
    "zeros on both sides of the point": b'{"d": 12300000.0000001e-5}',
    "nines on both sides of the point": b'{"d": 9.99999999999999e-1}',
    "too large": b'{"d": 12345678901234567.00}',
    "forty digits": b'{"d": ' + b"1" * 40 + b"}",
    "a huge exponent": b'{"d": 1e400}',
    "a huge double": b'{"f": 1e400}',
    "forty-one digits in a wide decimal": b'{"w": 0.' + b"0" * 10 + b"1}",
    "a number for an instant": b'{"t": 1700000000}',
    "a word for a flag": b'{"on": "yes"}',
    "a text for an object": b'{"s": "x"}',
    "cut digits inside": b'{"s": {"x": 0.001}}',
    "hidden digits inside": b'{"s": {"x": 0.00000000000000001}}',
    "a tiny number inside": b'{"s": {"x": 5e-20}}',
    "cut digits in an array": b'{"l": [1, 0.001]}',
    "cut digits in a map": b'{"m": {"k": 0.001}}',
    "nested too deeply": b'{"x": ' + b"[" * 5000 + b"]" * 5000 + b"}",
}
GOOD = {
    b"{}": {},
    b' {"n": 1} \n': {"n": 1},
    b'{"n": 1, "n": 2}': {"n": 2},
    b'{"d": 1.5, "e-": "1e-5"}': {"d": Decimal("1.50")},
    b'{"d": 0, "x": "e-0000000000"}': {"d": Decimal("0.00")},
    b'{"d": "7.25"}': {"d": Decimal("7.25")},
    b'{"d": 1250e-3}': {"d": Decimal("1.25")},
    b'{"d": 1.2500000000000000000000}': {"d": Decimal("1.25")},
    b'{"d": 1e3}': {"d": Decimal("1000.00")},
    b'{"d": -9999999999999999.99}': {"d": Decimal("-9999999999999999.99")},
    b'{"w": 1234567890123456789012345678.0123456789}': {
        "w": Decimal("1234567890123456789012345678.0123456789")
    },
    b'{"a": "1.23456789012345678901"}': {"a": "1.23456789012345678901"},
    b'{"a": 1.23456789012345678901}': {"a": "1.23456789012345678901"},
    b'{"a": {"x": [1]}}': {"a": '{"x":[1]}'},
    b'{"f": "1.5"}': {"f": 1.5},
    b'{"f": 0.1}': {"f": 0.1},
    b'{"l": [1.25, null, "3"], "m": {"k": 2}}': {
        "l": [Decimal("1.25"), None, Decimal("3.00")],
        "m": [("k", Decimal("2.00"))],
    },
    '{"a": "é漢😀"}'.encode(): {"a": "é漢😀"},
    b'{"a": "' + b"x" * 10_000_000 + b'"}': {"a": "x" * 10_000_000},
    b'{"s": {"x": 1.25, "y": "}"}}': {"s": {"x": Decimal("1.25"), "y": "}"}},
}


def test_bad_records_are_marked_and_the_others_are_not(spark):
    records = [*GOOD, None, *BAD.values()]
    found = careful(spark, records)
    nothing = dict.fromkeys([f.name for f in FIELDS])
    assert [row is None for row in found] == [False] * (len(GOOD) + 1) + [True] * len(BAD)
    assert found[: len(GOOD)] == [nothing | values for values in GOOD.values()]
    assert found[len(GOOD)] == nothing


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_fails(spark, name):
    with pytest.raises(Exception, match=REFUSED):
        fast(spark, [b'{"n": 1}', BAD[name]])


def test_reasons_are_given_for_the_same_records():
    decoder = decoder_for("json")
    assert decoder.reasons(list(GOOD), FIELDS) == [None] * len(GOOD)
    reasons = decoder.reasons(list(BAD.values()), FIELDS)
    assert [name for name, reason in zip(BAD, reasons, strict=True) if reason is None] == []


def test_what_is_not_doubtful_takes_the_fast_way(spark):
    plain = [
        b'{"d": 1.25, "a": "T00000000001e-5"}',
        b'{"d": 12, "id": 10000000000000, "uuid": "3e-00000000000"}',
        b'{"d": 0.00, "a": "x"} ',
        b'{"d": "5.5"}',
        None,
    ]
    fields = [FIELDS[0], FIELDS[2]]
    assert fast(spark, plain, fields) == careful(spark, plain, fields)
    assert [row["d"] for row in fast(spark, plain, fields)][:2] == [Decimal("1.25"), Decimal("12.00")]


def random_number(rng: random.Random) -> str:
    kind = rng.randrange(6)
    if kind == 0:
        return str(rng.randrange(-(10**6), 10**6))
    if kind == 1:
        return f"{rng.randrange(10**5)}.{rng.randrange(100):02d}"
    if kind == 2:
        return f"{rng.uniform(-1e6, 1e6)!r}"
    if kind == 3:
        zeros = rng.choice("09") * rng.randrange(0, 25)
        return f"{rng.randrange(100)}.{rng.randrange(100):02d}{zeros}{rng.choice(['', '1', '5', '0'])}"
    if kind == 4:
        exponent = rng.choice([rng.randrange(-25, 12), -1, -2])
        return f"{rng.randrange(1, 10 ** rng.randrange(1, 20))}e{exponent}"
    left = rng.choice("09") * rng.randrange(8)
    right = rng.choice("09") * rng.randrange(1, 8)
    return f"{rng.randrange(1, 99)}{left}.{right}{rng.randrange(10)}E-{rng.randrange(8)}"


def test_random_numbers_are_exact_or_bad(spark, rng, rounds):
    decoder = decoder_for("json")
    numbers = [random_number(rng) for _ in range(rounds(400, 20_000))]
    records = [f'{{"d": {number}, "a": "e-{number}"}}'.encode() for number in numbers]
    found = careful(spark, records, AMOUNT)
    expected = [
        Decimal(number) if reason is None else None
        for number, reason in zip(numbers, decoder.reasons(records, AMOUNT), strict=True)
    ]
    assert [None if row is None else row["d"] for row in found] == expected
    assert any(value is None for value in expected)
    # Alone, each is the same or fails in the fast way, too.
    frame = decoder.frame(records_frame(spark, records), AMOUNT, ["_offset"], careful=False)
    for number in rng.sample(range(len(records)), 25):
        one = frame.where(f"_offset = {number}")
        alone = outcome(one)
        assert alone in ([expected[number]], None), numbers[number]
        assert expected[number] is not None or alone is None, numbers[number]


def outcome(frame):
    """The amounts, None when Spark refuses."""
    try:
        return frame.toArrow()["d"].to_pylist()
    except Exception as exc:
        if re.search(REFUSED, str(exc)):
            return None
        raise


def test_a_bad_record_fails_whatever_is_asked(spark):
    for query in ("count(*)", "max(a)"):
        frame = decoder_for("json").frame(records_frame(spark, [b'{"n": "x"}']), FIELDS[:2], careful=False)
        with pytest.raises(Exception, match=REFUSED):
            frame.selectExpr(query).toArrow()


def test_columns_are_discovered_and_widened():
    decoder = decoder_for("json")
    sample = [b'{"a": 1, "b": 1.5, "c": {"x": "t"}}', b"no", b'{"d": [1]}']
    schema = decoder.columns(sample)
    assert schema.names == ["a", "b", "c", "d"]
    assert schema.field("b").type == pa.decimal128(18, 1)
    assert decoder.columns([b"no"]) is None
    wide = decoder.widen([b'{"a": 1.25, "e": true, "c": {"x": "t", "y": 1}, "d": [0.5]}'], schema)
    assert wide.field("a").type == pa.decimal128(21, 2)
    assert wide.field("e").type == pa.bool_()
    assert wide.field("c").type == pa.struct([("x", pa.string()), ("y", pa.int64())])
    assert wide.field("d").type == pa.list_(pa.decimal128(20, 1))
    assert decoder.widen([b'{"a": 5, "b": 2.5}', b"no"], schema) is None
