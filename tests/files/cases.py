"""What can happen to watched files: what they hold first, what is done to them, and the rows then."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Rows = list[tuple[str | None, int | None]]
START = b"k,v\na,1\nb,2\nc,3\n"
ABC: Rows = [("a", 1), ("b", 2), ("c", 3)]


@dataclass(frozen=True)
class Case:
    """`source` is a path or pattern in a folder of the case's own, which `action` gets."""

    name: str
    action: Callable[[Path], object]
    rows: Rows
    initial: dict[str, bytes] = field(default_factory=lambda: {"x.csv": START})
    first: Rows = field(default_factory=lambda: ABC)
    source: str = "x.csv"
    letters: int = 0
    """Bad rows that each table keeps."""
    outage: bool = False
    """Whether the file is missing in the end."""


def written(content: bytes, name: str = "x.csv") -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def appended(content: bytes, name: str = "x.csv") -> Callable[[Path], object]:
    def act(folder: Path) -> None:
        with (folder / name).open("ab") as out:
            out.write(content)

    return act


def renamed_over(content: bytes, name: str = "x.csv") -> Callable[[Path], object]:
    def act(folder: Path) -> None:
        other = folder / "elsewhere"
        other.write_bytes(content)
        other.replace(folder / name)

    return act


def truncated(size: int) -> Callable[[Path], object]:
    def act(folder: Path) -> None:
        with (folder / "x.csv").open("r+b") as out:
            out.truncate(size)

    return act


def deleted(*names: str) -> Callable[[Path], object]:
    return lambda folder: [(folder / name).unlink() for name in names]


def several(*actions: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda folder: [action(folder) for action in actions]


def zst(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        out.write(content)
    return sink.getvalue().to_pybytes()


def parquet(*rows: tuple[str, int]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": [k for k, _ in rows], "v": [v for _, v in rows]}), sink)
    return sink.getvalue().to_pybytes()


def lines(rows: Rows) -> bytes:
    return b"".join(f'{{"k":"{k}","v":{v}}}\n'.encode() for k, v in rows)


D: Rows = [("d", 4)]
PARTS = {"p1.csv": b"k,v\na,1\n", "p2.csv": b"k,v\nb,2\n", "p3.csv": b"k,v\nc,3\n"}

ONE_FILE = (
    Case("append", appended(b"d,4\n"), ABC + D),
    Case("append_a_line_without_its_end", appended(b"d,4"), ABC + D),
    Case(
        "finish_a_half_written_line",
        appended(b"5\nd,4\n"),
        [("a", 1), ("b", 25), ("d", 4)],
        {"x.csv": b"k,v\na,1\nb,2"},
        [("a", 1), ("b", 2)],
    ),
    Case("edit", written(START.replace(b"b,2", b"b,20")), [("a", 1), ("b", 20), ("c", 3)]),
    Case("edit_to_the_same_length", written(START.replace(b"b,2", b"z,7")), [("a", 1), ("z", 7), ("c", 3)]),
    Case("insert_a_line", written(START.replace(b"b,2", b"d,4\nb,2")), ABC + D),
    Case("delete_a_line", written(START.replace(b"b,2\n", b"")), [("a", 1), ("c", 3)]),
    Case("truncate", truncated(8), [("a", 1)]),
    Case("truncate_within_a_line", truncated(len(START) - 2), [("a", 1), ("b", 2), ("c", None)]),
    Case("truncate_within_a_field", truncated(len(START) - 3), [("a", 1), ("b", 2)], letters=1),
    Case("truncate_to_nothing", truncated(0), []),
    Case("truncate_to_the_header", truncated(4), []),
    Case("replace", written(b"k,v\nq,9\nr,8\n"), [("q", 9), ("r", 8)]),
    Case("rename_over", renamed_over(b"k,v\nq,9\nr,8\n"), [("q", 9), ("r", 8)]),
    Case("rename_over_with_the_same", renamed_over(START), ABC),
    Case("rename_over_with_more", renamed_over(START + b"d,4\n"), ABC + D),
    Case("delete", deleted("x.csv"), ABC, outage=True),
    Case("delete_and_write_again", several(deleted("x.csv"), written(b"k,v\nq,9\n")), [("q", 9)]),
    Case("touch", lambda folder: (folder / "x.csv").touch(), ABC),
    Case("crlf", appended(b"d,4\r\n"), ABC + D, {"x.csv": START.replace(b"\n", b"\r\n")}),
    Case("crlf_becomes_lf", written(START + b"d,4\n"), ABC + D, {"x.csv": START.replace(b"\n", b"\r\n")}),
    Case("byte_order_mark", appended(b"d,4\n"), ABC + D, {"x.csv": b"\xef\xbb\xbf" + START}),
    Case(
        "quoted_newlines",
        appended(b'"d\n,""x""",4\n'),
        [("a\nb", 1), ('d\n,"x"', 4)],
        {"x.csv": b'k,v\n"a\nb",1\n'},
        [("a\nb", 1)],
    ),
    Case(
        "quote_still_open",
        several(appended(b'"d'), appended(b'\ne",4\n')),
        [*ABC, ("d\ne", 4)],
    ),
    Case("header_in_another_order", written(b"v,k\n1,a\n2,b\n3,c\n4,d\n"), ABC + D),
    Case("header_with_more", written(b"k,w,v\na,x,1\nb,y,2\n"), [("a", 1), ("b", 2)]),
    Case("header_with_less", written(b"k\na\nb\n"), [("a", None), ("b", None)]),
    Case("nulls", appended(b",\nd,\n,4\n"), [*ABC, (None, None), ("d", None), (None, 4)]),
    Case("invalid_utf8", appended(b"d\xff,4\ne,5\n"), [*ABC, ("e", 5)], letters=1),
    Case("bad_fields", appended(b"d\ne,5\nf,six\ng,7,8\n"), [*ABC, ("e", 5)], letters=3),
    Case(
        "gz",
        written(gzip.compress(START + b"d,4\n"), "x.csv.gz"),
        ABC + D,
        {"x.csv.gz": gzip.compress(START)},
        source="x.csv.gz",
    ),
    Case(
        "zst",
        written(zst(b"k,v\nq,9\n"), "x.csv.zst"),
        [("q", 9)],
        {"x.csv.zst": zst(START)},
        source="x.csv.zst",
    ),
    Case(
        "json_lines",
        several(written(lines(ABC[1:]), "x.jsonl"), appended(b'{"v":4,"k":"d"}', "x.jsonl")),
        ABC[1:] + D,
        {"x.jsonl": lines(ABC)},
        source="x.jsonl",
    ),
    Case(
        "parquet",
        renamed_over(parquet(("a", 1), ("q", 9)), "x.parquet"),
        [("a", 1), ("q", 9)],
        {"x.parquet": parquet(("a", 1), ("b", 2), ("c", 3))},
        source="x.parquet",
    ),
)
SEVERAL_FILES = (
    Case("glob_add", written(b"k,v\nd,4\n", "p4.csv"), ABC + D, PARTS, source="p*.csv"),
    Case("glob_add_an_empty_file", written(b"", "p4.csv"), ABC, PARTS, source="p*.csv"),
    Case("glob_append", appended(b"d,4\n", "p2.csv"), ABC + D, PARTS, source="p*.csv"),
    Case(
        "glob_edit",
        written(b"k,v\nb,20\n", "p2.csv"),
        [("a", 1), ("b", 20), ("c", 3)],
        PARTS,
        source="p*.csv",
    ),
    Case("glob_truncate", written(b"", "p2.csv"), [("a", 1), ("c", 3)], PARTS, source="p*.csv"),
    Case("glob_delete", deleted("p2.csv"), [("a", 1), ("c", 3)], PARTS, source="p*.csv"),
    Case("glob_delete_all", deleted("p1.csv", "p2.csv", "p3.csv"), [], PARTS, source="p*.csv"),
    Case("glob_rename", lambda f: (f / "p2.csv").rename(f / "p9.csv"), ABC, PARTS, source="p*.csv"),
    Case("glob_rename_over", lambda f: (f / "p2.csv").replace(f / "p1.csv"), ABC[1:], PARTS, source="p*.csv"),
    Case(
        "glob_rename_away",
        lambda f: (f / "p2.csv").rename(f / "gone"),
        [("a", 1), ("c", 3)],
        PARTS,
        source="p*.csv",
    ),
    Case(
        "glob_other_columns",
        written(b"v,extra,k\n4,x,d\n", "p4.csv"),
        ABC + D,
        PARTS,
        source="p*.csv",
    ),
    Case(
        "folder",
        several(written(b"k,v\nd,4\n", "in/y.csv"), deleted("in/p1.csv")),
        ABC[1:] + D,
        {f"in/{name}": content for name, content in PARTS.items()},
        source="in/",
    ),
)
