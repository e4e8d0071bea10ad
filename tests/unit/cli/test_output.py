from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from velostream.cli.output import fitted, plain_table, pretty_table, texts


def drawn(rows: pa.Table, width: int) -> list[str]:
    from io import StringIO

    from rich.console import Console

    console = Console(width=width, file=StringIO(), force_terminal=False)
    console.print(pretty_table(rows, width))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


ROWS = pa.table(
    {
        "name": ["a" * 70, "b"],
        "n": pa.array([1, None], pa.int64()),
        "v": pa.array([Decimal("123456789012345678.90"), Decimal("-1.00")], pa.decimal128(20, 2)),
    }
)


@pytest.mark.parametrize("width", [50, 80, 120])
def test_numbers_are_never_cut_and_the_table_fits(width: int) -> None:
    lines = drawn(ROWS, width)
    assert max(map(len, lines)) <= width
    assert any("123456789012345678.90 │" in line for line in lines)
    assert any("                -1.00 │" in line for line in lines)


def test_what_cannot_fit_is_shown_in_blocks() -> None:
    lines = drawn(ROWS, 30)
    assert lines[0].startswith("row 1 ─") or "row 1" in lines[0]
    assert any("v" in line and "123456789012345678.90" in line for line in lines)


def test_texts_give_way_widest_first() -> None:
    cells = [["x" * 40, "y" * 20, "1"]]
    widths = fitted(["a", "b", "c"], cells, [False, False, True], 50)
    assert widths is not None
    assert widths[2] == 1
    assert sum(widths) + 10 == 50
    assert abs(widths[0] - widths[1]) <= 1


def test_a_plain_table_keeps_everything() -> None:
    lines = plain_table(ROWS).splitlines()
    assert lines[2].startswith("a" * 70)
    assert lines[3].endswith("-1.00")
    assert "∅" in lines[3]


def test_no_columns_no_lines() -> None:
    assert plain_table(pa.table({})) == ""


def test_bytes_are_shown_as_text_where_they_are_text() -> None:
    rows = pa.table({"raw": pa.array(["o5,café".encode(), b"\x00\xff", b"", b"bell\x07"], pa.binary())})
    assert texts(rows)[0] == [["o5,café"], ["X'00FF'"], [""], ["X'62656C6C07'"]]
