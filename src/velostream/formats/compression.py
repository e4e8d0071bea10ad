"""A file's bytes as UTF-8: byte order marks and compression."""

from __future__ import annotations

import codecs
import gzip
import zlib
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from velostream.errors import SourceDataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Document = Callable[[bytes], bool]

UTF8_MARK = codecs.BOM_UTF8
_CHUNK = 4 * 1024 * 1024
# Longer marks first: UTF-32 little-endian begins like UTF-16 little-endian.
_WIDE_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MARKED = "velostream.marked"
_SURROGATES = "surrogatepass"
COMPRESSIONS = (".gz", ".zst")
WHOLE_BYTES = 1 << 30
"""The most text of a file that can only be read whole: in memory it takes several times as much."""
LONGEST_RECORD = 64 << 20
"""The longest line: more is a file without line ends, or one made to fill the memory."""
_LINE = 32
"""The memory that a line takes beside its text; and how many times its text a document takes."""
_DOCUMENT = 4


def wide_encoding(head: bytes) -> str | None:
    """The encoding that a byte order mark announces when it is not UTF-8; None without one."""
    return next((name for mark, name in _WIDE_MARKS if head.startswith(mark)), None)


def begins_with_mark(path: Path) -> bool:
    """Whether a file begins with the byte order mark of UTF-8."""
    with path.open("rb") as stream:
        return stream.read(len(UTF8_MARK)) == UTF8_MARK


def compression(path: str) -> str | None:
    """`gz`, `zst` or None, by the file's name."""
    suffix = Path(path).suffix.lower()
    return suffix[1:] if suffix in COMPRESSIONS else None


def utf8_chunks(
    stream: IO[bytes], packed: str | None, *, document: Document = lambda _: False
) -> Iterator[bytes]:
    """A file's content as UTF-8 without its mark.

    Raises SourceDataError when it is damaged, incomplete or larger than `WHOLE_BYTES`, or has a line of more
    than `LONGEST_RECORD`, unless its beginning makes it a `document`. Bytes that are not UTF-8 are passed on:
    their records are judged one by one.
    """
    chunks = _bounded(_unpacked(stream, packed), document)
    first = next(chunks, b"")
    encoding = wide_encoding(first)
    if encoding is None:
        yield first.removeprefix(UTF8_MARK)
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors=_MARKED)
    for chunk in chain([first], chunks):
        yield decoder.decode(chunk).encode("utf-8", _SURROGATES)
    yield decoder.decode(b"", final=True).encode("utf-8", _SURROGATES)


def _marked(error: UnicodeError) -> tuple[str, int]:
    """Replaces undecodable bytes by half a surrogate pair, which marks the record as bad."""
    assert isinstance(error, UnicodeDecodeError)
    return "\ud800", error.end


codecs.register_error(_MARKED, _marked)


def too_long(position: int) -> str:
    """The reason why a line is no record."""
    return f"the record at byte {position} is longer than {LONGEST_RECORD >> 20} MiB"


def _bounded(chunks: Iterator[bytes], document: Document) -> Iterator[bytes]:
    weight = size = line = 0
    whole = False
    for chunk in chunks:
        whole = whole or (not size and document(chunk))
        weight += _DOCUMENT * len(chunk) if whole else len(chunk) + _LINE * chunk.count(b"\n")
        last = chunk.rfind(b"\n") + 1
        line = size + last if last else line
        size += len(chunk)
        if not whole and size - line > LONGEST_RECORD:
            raise SourceDataError(too_long(line))
        if weight > WHOLE_BYTES:
            raise SourceDataError(
                "it is too large: a compressed file, a JSON document or a UTF-16 text is read whole, and "
                f"would take as much memory as {WHOLE_BYTES >> 20} MiB of long lines do; "
                "write uncompressed lines in UTF-8, or several files"
            )
        yield chunk


def _unpacked(stream: IO[bytes], packed: str | None) -> Iterator[bytes]:
    if packed == "zst":
        import pyarrow as pa

        try:
            with pa.CompressedInputStream(stream, "zstd") as content:
                while chunk := content.read(_CHUNK):
                    yield chunk
        except OSError as exc:
            raise SourceDataError("the zstd data is damaged or unfinished") from exc
        return
    content = cast("IO[bytes]", gzip.GzipFile(fileobj=stream)) if packed == "gz" else stream
    try:
        while chunk := content.read(_CHUNK):
            yield chunk
    except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
        raise SourceDataError("the gzip data is damaged or unfinished") from exc
