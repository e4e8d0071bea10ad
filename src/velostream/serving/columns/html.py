"""Rows as an HTML table, for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from velostream.formats.json.text import cell_text
from velostream.serving.columns.values import to_python

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS = 20
"""Rows that a notebook shows; the number of all follows."""
_LONGEST = 200


def html_table(rows: pa.Table, total: int | None = None, title: str = "") -> str:
    """The first rows; `total` is the number of all of them, where `rows` are not all."""
    shown = rows.slice(0, MOST_ROWS)
    head = "".join(f"<th>{escape(name)}</th>" for name in shown.schema.names)
    columns = [to_python(column) for column in shown.columns]
    body = "".join(f"<tr>{''.join(map(_cell, values))}</tr>" for values in zip(*columns, strict=True))
    count = rows.num_rows if total is None else total
    foot = f"{count:,} row{'' if count == 1 else 's'}"
    foot += f", the first {shown.num_rows} shown" if count > shown.num_rows else ""
    above = f"<strong>{escape(title)}</strong>" if title else ""
    return f"{above}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><small>{foot}</small>"


def _cell(value: Any) -> str:
    if value is None:
        return '<td style="color: gray">NULL</td>'
    text = cell_text(value)
    return f"<td>{escape(text if len(text) <= _LONGEST else text[:_LONGEST] + '…')}</td>"
