"""JSON numbers with more digits than a double holds.

Spark converts a number to a text column through a double, which keeps about 15 digits. Longer numbers are
therefore quoted before Spark reads them; converting text to a decimal is exact. The first character of such a
text is escaped, which nobody else does to a digit or a sign: so it differs from a user's text.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from velostream.formats.records import Records, join_records

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SAFE_DIGITS = 15
_STRIDE = 8
_LONG = re.compile(rb"[0-9.]{16,}")
_MARK = '"\\u00'
_OURS = re.compile(r'"\\u00(2d|3\d)([-+.0-9eE]*)"')
_TOKEN = re.compile(
    rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|(?:-|(?<!\d))\d++(?:\.\d++(?:[eE][-+]?\d++)?|[eE][-+]?\d++)', re.DOTALL
)
"""Matches texts and fractional numbers, in linear time for any record.

An unclosed text extends to the end, and a number is tried from its first digit only.
"""


def keep_digits(records: Records) -> Records:
    """The same records with long fractional numbers as texts; their offsets remain those of the file."""
    if not _may_be_long(records.text):
        return records
    old = records.as_list()
    new = [_quoted(record) if _LONG.search(record) else record for record in old]
    if new == old:
        return records
    text, separator = join_records(new)
    return replace(records, text=text, separator=separator, line_end=0, starts=records.positions())


def restored(record: str) -> str:
    """The inverse of `keep_digits` for one record."""
    return _OURS.sub(lambda match: chr(int(match[1], 16)) + match[2], record) if _MARK in record else record


def _may_be_long(text: bytes) -> bool:
    """Whether there is a run of at least 16 digits and points, at about 1 GB/s.

    Such a run covers nine bytes from some multiple of eight on; where those fit, its ends are searched.
    """
    data = np.frombuffer(text, dtype=np.uint8)
    whole = (len(data) - 1) // _STRIDE * _STRIDE
    if whole <= 0:
        return False
    runs = np.ones(whole // _STRIDE, dtype=np.bool_)
    for shift in range(_STRIDE + 1):
        runs &= _numeric(data[shift : shift + whole : _STRIDE])
        if not runs.any():
            return False
    begins = np.flatnonzero(runs) * _STRIDE
    around = np.arange(1, _STRIDE)
    before = _numeric(data[np.maximum(begins[:, None] - around, 0)]) & (begins[:, None] >= around)
    after_at = begins[:, None] + _STRIDE + around
    after = _numeric(data[np.minimum(after_at, len(data) - 1)]) & (after_at < len(data))
    length = _STRIDE + 1 + _leading(before) + _leading(after)
    return bool((length > _SAFE_DIGITS).any())


def _numeric(data: NDArray[np.uint8]) -> NDArray[np.bool_]:
    # 46 is the point, 47 the slash between it and the digits.
    fits: NDArray[np.bool_] = (data >= 46) & (data <= 57) & (data != 47)
    return fits


def _leading(rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The number of leading true values in each row."""
    counts: NDArray[np.int64] = np.cumprod(rows, axis=1, dtype=np.int64).sum(axis=1)
    return counts


def _quoted(record: bytes) -> bytes:
    def replace(match: re.Match[bytes]) -> bytes:
        token = match[0]
        if token.startswith(b'"') or sum(48 <= byte <= 57 for byte in token) <= _SAFE_DIGITS:
            return token
        return b'"\\u00%02x' % token[0] + token[1:] + b'"'

    return _TOKEN.sub(replace, record)
