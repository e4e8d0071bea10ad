"""Lines of standard input as records."""

from __future__ import annotations

import pytest

from refusals import refusal
from velostream.formats.text_lines import Line, csv_rows, json_lines, text_lines


def test_json_stays_as_it_is_written() -> None:
    lines = ['{"a": 1.50, "k": "x"}\n', "\n", '{"k":7}\r\n', '{"k":{"x":1}}', '{"b":2}', '{"k":null}']
    assert list(json_lines(lines, "k")) == [
        Line("x", '{"a": 1.50, "k": "x"}'),
        Line("7", '{"k":7}'),
        Line('{"x":1}', '{"k":{"x":1}}'),
        Line(None, '{"b":2}'),
        Line(None, '{"k":null}'),
    ]
    assert [line.key for line in json_lines(lines, None)] == [None] * 5


@pytest.mark.parametrize(
    ("cells", "written"),
    [
        (["1", "-2.50", ""], ["1", "-2.50", "null"]),
        (["1", "x"], ['"1"', '"x"']),
        (["01234", "90210"], ['"01234"', '"90210"']),
        (["true", "false"], ["true", "false"]),
        (["true", "1"], ['"true"', '"1"']),
        (["1e5", "NaN"], ['"1e5"', '"NaN"']),
        (["", ""], ["null", "null"]),
    ],
)
def test_a_column_of_csv_is_what_all_its_cells_look_like(cells: list[str], written: list[str]) -> None:
    found = [line.value for line in csv_rows(["a,b\n", *(f"{cell},-\n" for cell in cells)], None)]
    assert found == [f'{{"a":{cell},"b":"-"}}' for cell in written]


def test_a_later_cell_that_is_no_number_stays_text() -> None:
    rows = ["n\n", *("7\n" for _ in range(1000)), "seven\n"]
    assert list(csv_rows(rows, "n"))[-1] == Line("seven", '{"n":"seven"}')


def test_text_keeps_its_spaces() -> None:
    assert [line.value for line in text_lines([" a \n", "\r\n", "b"], None)] == [" a ", "", "b"]


def test_what_cannot_be_read() -> None:
    with refusal("source.data", 1):
        list(json_lines(["nonsense"], None))
    with refusal("source.data", 2):
        list(json_lines(["{}", "3"], None))
    with refusal("source.data", 3):
        list(csv_rows(["a,b\n", "1,2\n", "1\n"], None))
    with refusal("source.data", "c"):
        list(csv_rows(["a,b\n"], "c"))
    with refusal("source.data"):
        list(text_lines(["a"], "k"))
