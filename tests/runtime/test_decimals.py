"""Decimals stay exact from a file through tables and out to files, checked against Python's own."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from refusals import refusal
from velostream.errors import SqlError, TableError

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from velostream.runtime.instance import Instance

pytestmark = pytest.mark.spark
QUICK = '"file.debounce" = "50ms"'

Row = tuple[str, Decimal | None, Decimal | None]
EDGES = ("0", "-0.01", "0.001", "12345.67", "-99999999999.999", "99999999999.999", "0.100", "10")


def random_rows(rng: random.Random, count: int) -> list[Row]:
    return [(rng.choice("abcd"), _value(rng, 11, 3), _value(rng, 9, 4)) for _ in range(count)]


def _value(rng: random.Random, whole: int, places: int) -> Decimal | None:
    if rng.random() < 0.1:
        return None
    if rng.random() < 0.2 and whole == 11:
        return Decimal(rng.choice(EDGES))
    scale = rng.randint(0, places)
    digits = rng.randrange(10 ** rng.randint(1, whole + scale))
    return Decimal(rng.choice((digits, -digits))).scaleb(-scale)


def text(value: Decimal | None) -> str:
    return "" if value is None else format(value, "f")


def write(path: Path, rows: list[Row], mode: str = "w") -> None:
    with path.open(mode) as out:
        if path.suffix == ".csv":
            out.write("g,a,b\n" if mode == "w" else "")
            out.writelines(f"{g},{text(a)},{text(b)}\n" for g, a, b in rows)
        else:
            out.writelines(
                f'{{"g":"{g}","a":{text(a) or "null"},"b":{text(b) or "null"}}}\n' for g, a, b in rows
            )


def expected(rows: list[Row], schema: Any) -> dict[str, tuple[Any, ...]]:
    """SUM, AVG, MIN, MAX and the sum of products by group, in Python."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[0]].append(row)
    found = {}
    place = Decimal(1).scaleb(-schema.field("av").type.scale)
    with localcontext() as context:
        context.prec = 200
        for g, members in groups.items():
            known = [a for _, a, _ in members if a is not None]
            products = [a * b for _, a, b in members if a is not None and b is not None]
            average = (sum(known) / len(known)).quantize(place, ROUND_HALF_UP) if known else None
            found[g] = (
                g,
                sum(known) if known else None,
                average,
                min(known, default=None),
                max(known, default=None),
                sum(products) if products else None,
            )
    return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_arithmetic_is_that_of_python(form, opened, tmp_path, rng, rounds):
    path, out = tmp_path / f"in.{form}", tmp_path / "out"
    log = tmp_path / f"log.{form}"
    rows = random_rows(rng, 60)
    logged = random_rows(rng, 60)
    write(path, rows)
    write(log, logged)
    database: Instance = opened(tmp_path / "data")
    database.sql(
        f"CREATE SOURCE src (g STRING, a DECIMAL(14,3), b DECIMAL(13,4)) FROM file://{path} WITH ({QUICK});"
        f"CREATE SOURCE log (g STRING, a DECIMAL(14,3), b DECIMAL(13,4)) FROM file://{log};"
        "CREATE TABLE sums"
        " AS SELECT g, SUM(a) AS s, AVG(a) AS av, MIN(a) AS mn, MAX(a) AS mx, SUM(a * b) AS p"
        " FROM src GROUP BY g;"
        "CREATE TABLE parts AS SELECT a, b, a + b AS plus, a - b AS minus, a * b AS times FROM src"
    )
    for sink in ("csv", "jsonl", "parquet"):
        database.sql(f"INSERT INTO file://{out}/x.{sink} SELECT a, b, a + b AS plus, a * b AS times FROM log")
    for _ in range(rounds(2, 12)):
        assert database.wait_idle(120), database.jobs()
        table = database.table("sums")
        assert {row.g: tuple(row) for row in table.rows()} == expected(rows, table.spec.schema)
        for row in database.table("parts").rows():
            if row.a is not None and row.b is not None:
                assert (row.plus, row.minus, row.times) == (row.a + row.b, row.a - row.b, row.a * row.b)
        assert len(database.table("parts")) == len(rows)
        rows = rng.sample(rows, len(rows) * 3 // 4) + random_rows(rng, 10)
        write(path, rows)
        more = random_rows(rng, 5)
        write(log, more, "a")
        logged += more
    assert database.wait_idle(120), database.jobs()
    check_sinks(out, logged)


def check_sinks(out: Path, rows: list[Row]) -> None:
    """Every sink has the same digits, scale included."""
    wanted = sorted((_triple(a, b) for _, a, b in rows), key=repr)
    with (out / "x.csv").open(newline="") as lines:
        found = [
            tuple(row[name] or None for name in ("a", "b", "plus", "times")) for row in csv.DictReader(lines)
        ]
    assert sorted(found, key=repr) == wanted
    found = []
    for line in (out / "x.jsonl").read_text().splitlines():
        row = json.loads(line, parse_float=str, parse_int=str)
        found.append(tuple(row.get(name) for name in ("a", "b", "plus", "times")))
    assert sorted(found, key=repr) == wanted
    parquet = pq.read_table(out / "x.parquet").to_pylist()
    found = [tuple(None if v is None else format(v, "f") for v in row.values()) for row in parquet]
    assert sorted(found, key=repr) == wanted


def _triple(a: Decimal | None, b: Decimal | None) -> tuple[str | None, ...]:
    both = a is not None and b is not None
    return (
        None if a is None else f"{a + 0:.3f}",
        None if b is None else f"{b + 0:.4f}",
        f"{a + b + 0:.4f}" if both else None,
        f"{a * b + 0:.7f}" if both else None,
    )


def test_discovered_numbers_keep_every_digit(opened, tmp_path):
    numbers = [
        "12345.67",
        "0.1",
        "-7",
        "123456789012345678901234.5",
        "9007199254740993",
    ]
    csv_file, json_file = tmp_path / "x.csv", tmp_path / "x.jsonl"
    csv_file.write_text("v\n" + "\n".join(numbers[:3]) + "\n")
    json_file.write_text("".join(f'{{"v": {number}}}\n' for number in numbers[:3]))
    database = opened(tmp_path / "data")
    for name, path in (("c", csv_file), ("j", json_file)):
        database.sql(f"CREATE TABLE {name} AS SELECT v FROM file://{path}")
        database.sql(f"CREATE TABLE {name}_sum AS SELECT SUM(v) AS s, MAX(v) AS m FROM file://{path}")
    with csv_file.open("a") as out:
        out.write("\n".join(numbers[3:]) + "\n")
    with json_file.open("a") as out:
        out.writelines(f'{{"v": {number}}}\n' for number in numbers[3:])
    assert database.wait_idle(120), database.jobs()
    for name in ("c", "j"):
        assert {row.v for row in database.table(name).rows()} == set(map(Decimal, numbers))
        total = sum(map(Decimal, numbers))
        assert [tuple(row) for row in database.table(f"{name}_sum").rows()] == [(total, Decimal(numbers[3]))]
    answer = database.sql("SELECT SUM(v) AS s, AVG(v) AS a FROM c").rows()[0]
    assert answer.s == total


def test_results_that_would_cut_digits_are_refused(opened, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b,c\n1.5,2.5,3\n")
    database = opened(tmp_path / "data")
    database.sql(
        f"CREATE SOURCE wide (a DECIMAL(38,10), b DECIMAL(38,2), c DECIMAL(30,20)) FROM file://{path}"
    )
    for expression in ("a * b", "a + b", "a - c", "a * 2.5", "SUM(a * b)", "MAX(a) * MAX(c)"):
        with refusal("sql.type", why="lose digits") as refused:
            database.sql(f"CREATE TABLE t AS SELECT {expression} AS x FROM wide")
        assert "CAST(" in refused.value.hint
        assert database.catalog.get("t") is None
    database.sql(
        "CREATE TABLE t"
        " AS SELECT CAST(a AS DECIMAL(18,6)) * CAST(b AS DECIMAL(18,2)) AS x, a / b AS q FROM wide"
    )
    assert database.table("t").page()[0].x == Decimal("3.75")


def test_a_row_that_overflows_is_a_dead_letter(opened, tmp_path):
    path = tmp_path / "x.csv"
    big = "9" * 37
    path.write_text(f"k,a,b\nfits,1,2\nover,{big}0,{big}0\n")
    database = opened(tmp_path / "data")
    database.sql(
        f"CREATE SOURCE src (k STRING, a DECIMAL(38,0), b DECIMAL(38,0)) FROM file://{path} WITH ({QUICK})"
    )
    database.sql("CREATE TABLE t AS SELECT k, a + b AS s FROM src")
    database.sql("CREATE TABLE g AS SELECT k, SUM(a + b) AS s, COUNT(*) AS n FROM src GROUP BY k")
    assert [tuple(row) for row in database.table("t").rows()] == [("fits", Decimal(3))]
    assert [tuple(row) for row in database.table("g").rows()] == [("fits", Decimal(3), 1)]
    letters = database.sql("SELECT job, reason FROM dead_letters").rows()
    assert sorted(row.job for row in letters) == ["g", "t"]
    path.write_text("k,a,b\nfits,1,2\nover,5,6\n")
    assert database.wait_idle(60)
    assert {tuple(row) for row in database.table("t").rows()} == {("fits", Decimal(3)), ("over", Decimal(11))}


def test_a_declared_decimal_takes_no_digit_away(opened, tmp_path):
    """A value with more digits than its column is a bad row, not a rounded one."""
    path, lines = tmp_path / "x.csv", tmp_path / "x.jsonl"
    path.write_text("k,v\na,1.25\nb,1.255\nc,123456789.00\n")
    lines.write_text('{"k":"a","v":1.25}\n{"k":"b","v":1.255}\n{"k":"c","v":123456789.00}\n')
    database = opened(tmp_path / "data")
    for name, uri in (("c", path), ("j", lines)):
        database.sql(f"CREATE SOURCE {name}_s (k STRING, v DECIMAL(10,2)) FROM file://{uri}")
        database.sql(f"CREATE TABLE {name} AS SELECT * FROM {name}_s WHERE k <> 'c'")
        assert [tuple(row) for row in database.table(name).rows()] == [("a", Decimal("1.25"))]
        letters = database.sql(f"SELECT raw FROM dead_letters WHERE job = '{name}'").rows()
        assert any(b"1.255" in bytes(row.raw) for row in letters)
    database.sql("CREATE TABLE hand (v DECIMAL(10,2))")
    with pytest.raises((SqlError, TableError)):
        database.sql("INSERT INTO hand VALUES (1.255)")
    with pytest.raises((SqlError, TableError)):
        database.sql("INSERT INTO hand SELECT 1.255")
    assert len(database.table("hand")) == 0
