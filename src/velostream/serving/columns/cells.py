"""Single values of Arrow columns, read from their buffers.

Slicing an Arrow array and converting the slice costs 3 µs a value; reading the buffer costs a tenth of it.
"""

from __future__ import annotations

from decimal import Decimal
from sys import intern
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from velostream.serving.columns.values import EXACT, to_python

if TYPE_CHECKING:
    from collections.abc import Callable

    Cell = Callable[[int], Any]
    """From the place of a row to its value, as readers see it."""


class CodedTexts:
    """The texts of a dictionary-encoded column, each made once; one object for all segments."""

    def __init__(self, texts: pa.Array) -> None:
        self._read = _text(texts)
        self._made: list[str | None] = [None] * (len(texts) + 1)
        """By code. The last stays None: the text of code -1, which stands for null."""

    def text(self, code: int) -> str:
        """The text of one code."""
        text = self._made[code]
        if text is None:
            text = self._made[code] = intern(self._read(code))
        return text

    def texts(self, codes: pa.Array) -> list[str | None]:
        """The texts of many codes, None for null."""
        wanted = codes.fill_null(-1).to_numpy(zero_copy_only=False).tolist()
        made = self._made
        found = list(map(made.__getitem__, wanted))
        if None in found:
            for code in {code for code in wanted if code >= 0 and made[code] is None}:
                self.text(code)
            found = list(map(made.__getitem__, wanted))
        return found


def cell_reader(array: pa.Array, texts: CodedTexts | None = None) -> Cell:
    """A function from place to value. It keeps the array alive; `texts` are those of a dictionary array."""
    if texts is not None:
        return _coded_text(array, texts)
    kind = array.type
    make = _maker(array)
    if make is None:
        return lambda place: to_python(array.slice(place, 1))[0]
    if array.null_count == 0:
        return make
    valid, first = memoryview(array.buffers()[0]), array.offset

    def nullable(place: int) -> Any:
        bit = first + place
        return make(place) if valid[bit >> 3] >> (bit & 7) & 1 else None

    return nullable if not pa.types.is_null(kind) else lambda _: None


def _maker(array: pa.Array) -> Cell | None:
    kind = array.type
    if pa.types.is_string(kind):
        return _text(array)
    if pa.types.is_decimal128(kind):
        return _decimal(array)
    if kind in (pa.int64(), pa.int32(), pa.int16(), pa.int8(), pa.float64()):
        return _number(array)
    return None


def _number(array: pa.Array) -> Cell:
    values = np.frombuffer(array.buffers()[1], dtype=array.type.to_pandas_dtype())
    # A memoryview returns Python numbers at a third of the cost of the numpy array.
    cells: Cell = values[array.offset : array.offset + len(array)].data.__getitem__
    return cells


def _text(array: pa.Array) -> Cell:
    _, places, data = array.buffers()
    offsets = memoryview(places).cast("i")[array.offset : array.offset + len(array) + 1]
    letters = memoryview(data if data is not None else b"")

    def read(place: int) -> str:
        return str(letters[offsets[place] : offsets[place + 1]], "utf-8")

    return read


def _coded_text(array: pa.DictionaryArray, texts: CodedTexts) -> Cell:
    code_at, text = cell_reader(array.indices), texts.text
    if not array.null_count:
        return lambda place: text(code_at(place))

    def read(place: int) -> str | None:
        code = code_at(place)
        return None if code is None else text(code)

    return read


def _decimal(array: pa.Array) -> Cell:
    halves = memoryview(array.buffers()[1]).cast("q")[2 * array.offset : 2 * (array.offset + len(array))]
    exponent = -array.type.scale
    scaled = EXACT.scaleb

    def read(place: int) -> Decimal:
        low, high = halves[2 * place], halves[2 * place + 1]
        whole = low if high == low >> 63 else (high << 64) | (low & 0xFFFFFFFFFFFFFFFF)
        return scaled(Decimal(whole), exponent) if exponent else Decimal(whole)

    return read
