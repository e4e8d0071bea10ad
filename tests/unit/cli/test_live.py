"""The live view of a followed SELECT, as it is drawn on terminals of several sizes."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from velostream.cli.prompt.live import View
from velostream.runtime.answers.events import Changes, Following


def drawn(view: View, width: int = 100, height: int = 30) -> list[str]:
    """The lines of the view on a terminal of that size."""
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(view)
    return captured.get().splitlines()


@pytest.mark.parametrize(
    ("column", "first", "then", "shown"),
    [
        (pa.list_(pa.int32()), [1, 2], [3, None], "[3,null]"),
        (
            pa.struct([("a", pa.int32()), ("b", pa.string())]),
            {"a": 1, "b": "x"},
            {"a": 2, "b": None},
            '"a":2',
        ),
        (pa.map_(pa.string(), pa.int64()), [("k", 1)], [("k", 2)], '{"k":2}'),
        (pa.list_(pa.float64()), [float("nan")], [0.5], "[0.5]"),
        (pa.float64(), float("nan"), 0.5, "0.5"),
        (pa.binary(), b"\xff", b"a", "a"),
    ],
)
def test_a_row_of_any_type_is_drawn_and_leaves_when_it_is_retracted(
    column: pa.DataType, first: Any, then: Any, shown: str
) -> None:
    schema = pa.schema([("id", pa.int32()), ("c", column)])

    def rows(*values: Any) -> pa.Table:
        return pa.table({"id": [1] * len(values), "c": pa.array(values, column)}, schema=schema)

    view = View(Following(schema, ("id",), retracts=True))
    view.apply(Changes(rows(first, first), None))
    assert any("2 rows" in line for line in drawn(view))
    view.apply(Changes(rows(then), rows(first, first)))
    text = "\n".join(drawn(view))
    assert shown in text
    assert "1 rows; 3 changes" in text


def test_the_view_is_as_the_query_orders_it() -> None:
    schema = pa.schema([("n", pa.float64())])
    view = View(Following(schema, (), retracts=True, order=(("n", True),)))
    view.apply(Changes(pa.table({"n": [1.0, None, float("nan"), 2.5]}), None))
    cells = [line.strip("│ ") for line in drawn(view)[3:7]]
    assert cells == ["NaN", "2.5", "1.0", "∅"]


@pytest.mark.parametrize("expanded", [False, True])
@pytest.mark.parametrize(("width", "height"), [(120, 40), (80, 24), (36, 12), (20, 8)])
def test_a_small_terminal_shows_fewer_rows_and_how_to_end_it(width: int, height: int, expanded: bool) -> None:
    rows = pa.table(
        {
            "id": range(50),
            "amount": [n * 1.5 for n in range(50)],
            "note": [f"a longer text of row {n} that does not fit into a line" for n in range(50)],
        }
    )
    view = View(Following(rows.schema, ("id",), retracts=True), expanded=expanded)
    view.apply(Changes(rows, None))
    lines = drawn(view, width, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    assert "Ctrl-C ends" in " ".join(lines)
    assert "more; 50 changes" in " ".join(lines)
    assert not expanded or lines[0].startswith("row 1 ─")
