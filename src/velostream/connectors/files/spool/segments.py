"""Segments: immutable files of records in the spool; and the state of the files they were read from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from velostream.formats.records import NEWLINE


class Piece(NamedTuple):
    """A run of consecutive records in a segment that were read from one file.

    `start` is the byte offset in that file of the first record (for binary formats, a row number) at the time
    of reading. It never changes, so that a retracted row equals the row that was added. `line_end` bytes
    followed each record; 0 means that the segment's index holds the offsets.
    """

    path: str
    start: int
    rows: int
    size: int
    line_end: int = 1


class PieceId(NamedTuple):
    """Identifies a piece: its segment, and its number within it."""

    segment: str
    number: int


@dataclass(frozen=True)
class Segment:
    """One file of the spool: `kind` is `text`, `parquet` or `orc`."""

    name: str
    kind: str
    rows: int
    size: int
    at_micros: int
    pieces: tuple[Piece, ...]
    columns: tuple[str, ...] | None = None
    """Names of a CSV's fields, or `name:type` of a binary format; None for JSON."""
    separator: bytes = NEWLINE
    indexed: bool = False
    timed: bool = False
    """Whether its records were read at several instants, stored beside it; `at_micros` is the first."""
    plain: bool = False
    """See `Records.plain`."""
    sums: tuple[int, ...] = ()
    """Checksums of the file, then of its index and its instants if it has them; empty in earlier versions."""

    @property
    def path(self) -> str:
        """The path of one of the files its records came from; all have the same format."""
        return self.pieces[0].path if self.pieces else ""

    def as_json(self) -> dict[str, Any]:
        """For the journal."""
        return {
            "n": self.name,
            "k": self.kind,
            "r": self.rows,
            "b": self.size,
            "t": self.at_micros,
            "p": [list(piece) for piece in self.pieces],
            "c": None if self.columns is None else list(self.columns),
            "s": self.separator.decode("ascii"),
            "x": self.indexed,
            "i": self.timed,
            "d": self.plain,
            "z": list(self.sums),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """From the journal."""
        return cls(
            data["n"],
            data["k"],
            data["r"],
            data["b"],
            data["t"],
            tuple(Piece(*piece) for piece in data["p"]),
            None if data["c"] is None else tuple(data["c"]),
            data["s"].encode("ascii"),
            data["x"],
            data.get("i", False),
            data.get("d", False),
            tuple(data.get("z", ())),
        )


class Identity(NamedTuple):
    """The `stat` of a file. The same identity means the same content, once the file is quiet."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @property
    def place(self) -> tuple[int, int]:
        """The file in the sense of the file system, whatever its name and content."""
        return self.device, self.inode


@dataclass(frozen=True)
class FileState:
    """How far one file has been read into the spool.

    The first `consumed` bytes are read; `blocks` are (length, digest) of them, in order. The last
    `provisional` records, from byte `settled` on, had no visible end yet and may still grow. `whole` files
    are always read from the beginning (compressed, transcoded, documents, binary formats). `pieces` are its
    live records. `damaged` is the identity with which the file could not be read; that was reported.
    """

    identity: Identity
    consumed: int = 0
    settled: int = 0
    provisional: int = 0
    whole: bool = False
    columns: tuple[str, ...] | None = None
    blocks: tuple[tuple[int, str], ...] = ()
    pieces: tuple[PieceId, ...] = field(default=())
    damaged: Identity | None = None

    def as_json(self) -> list[Any]:
        """For the journal."""
        return [
            list(self.identity),
            self.consumed,
            self.settled,
            self.provisional,
            self.whole,
            None if self.columns is None else list(self.columns),
            [list(block) for block in self.blocks],
            [list(piece) for piece in self.pieces],
            self.damaged and list(self.damaged),
        ]

    @classmethod
    def from_json(cls, data: list[Any]) -> Self:
        """From the journal."""
        identity, consumed, settled, provisional, whole, columns, blocks, pieces, *later = data
        damaged = later[0] if later else None
        return cls(
            Identity(*identity),
            consumed,
            settled,
            provisional,
            whole,
            None if columns is None else tuple(columns),
            tuple((length, digest) for length, digest in blocks),
            tuple(PieceId(segment, number) for segment, number in pieces),
            damaged and Identity(*damaged),
        )

    def with_pieces(self, pieces: tuple[PieceId, ...]) -> FileState:
        """The same state with its records in other pieces."""
        return replace(self, pieces=pieces)


class SpooledBadRow(NamedTuple):
    """A record that never became a row, kept in the journal (`raw` as Latin-1 text)."""

    reason: str
    path: str
    start: int
    raw: str
