"""A place whose listing cannot tell two versions apart, such as an object store's within a second."""

from __future__ import annotations

import io
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING

import pytest

from files_model import AB, weighted
from refusals import refusal
from velostream.connectors.base import SourceContext
from velostream.connectors.file.options import FileOptions
from velostream.connectors.files.place import Listing, Place
from velostream.connectors.files.source import FilesSource
from velostream.connectors.files.spool.segments import Identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "bucket/one.csv"
WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)


class Stored(io.BytesIO):
    """One version; it may break off."""

    def __init__(self, content: bytes, *, broken: bool) -> None:
        super().__init__(content)
        self.tag = str(hash(content))
        self._broken = broken

    def read(self, size: int | None = -1, /) -> bytes:
        if self._broken:
            raise OSError("the connection was lost")
        return super().read(size)


class Bucket(Place):
    """One object, whose versions have the same size and second; `same` goes by their tags."""

    grain = timedelta(seconds=2)
    clocks = timedelta(minutes=10)
    compares = False
    name = NAME
    several = False

    def __init__(self) -> None:
        self.content = b"a,b\n1,x\n"
        self.broken = False
        self._taken: dict[str, str] = {}

    def look(self) -> Listing:
        return Listing({NAME: self._identity()})

    check = look

    def _identity(self) -> Identity:
        return Identity(0, 0, len(self.content), int(WRITTEN.timestamp()) * 1_000_000_000)

    def absent(self) -> str | None:
        return None

    @contextmanager
    def open(self, path: str) -> Iterator[IO[bytes]]:
        yield Stored(self.content, broken=self.broken)

    def identity(self, path: str, stream: IO[bytes]) -> Identity:
        return self._identity()

    def same(self, path: str, stream: IO[bytes]) -> bool | None:
        assert isinstance(stream, Stored)
        return stream.tag == self._taken[path] if path in self._taken else None

    def took(self, path: str, stream: IO[bytes]) -> None:
        assert isinstance(stream, Stored)
        self._taken[path] = stream.tag

    def took_nothing(self) -> None:
        self._taken.clear()


class Reader:
    """A table's source over the bucket, with a clock of the test's own."""

    def __init__(self, folder: Path, debounce: str) -> None:
        self.bucket, self.now = Bucket(), WRITTEN
        options = FileOptions.model_validate({"path": NAME, "format": "csv", "file.debounce": debounce})
        context = SourceContext(folder / "spool", schema=AB, clock=lambda: self.now)
        self.source = FilesSource(self.bucket, options, context)
        self.offset: dict[str, int] | None = None

    def poll(self, seconds: float = 0.1) -> Counter[tuple]:
        self.now += timedelta(seconds=seconds)
        self.offset = self.source.latest(self.offset)
        return weighted(self.source, None, self.offset["spool"])


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path, "500ms")


def test_a_version_that_was_looked_at_too_early_is_read_later(reader: Reader) -> None:
    """Within `file.debounce` it is not read, and has not been read: it differs from what was."""
    assert reader.poll() == Counter({("1", "x"): 1})
    reader.bucket.content = b"a,b\n2,x\n"
    reader.poll()
    found = [reader.poll() for _ in range(30)][-1]
    assert found == Counter({("2", "x"): 1})


def test_a_version_that_could_not_be_read_is_read_later(reader: Reader) -> None:
    reader.poll()
    reader.poll(1)
    reader.bucket.content, reader.bucket.broken = b"a,b\n2,x\n", True
    with refusal("source.unreadable", NAME):
        reader.poll()
    reader.bucket.broken = False
    found = [reader.poll() for _ in range(30)][-1]
    assert found == Counter({("2", "x"): 1})
