"""Row events of MySQL, as bytes."""

from decimal import Decimal

import pytest

from velostream.connectors.mysql.read.binlog import table_maps
from velostream.connectors.mysql.read.binlog.row_events import read_images, width
from velostream.connectors.mysql.read.binlog.table_maps import Stored
from velostream.connectors.mysql.read.binlog.values import read_values

HEADER = 19
WRITE = 30


def event(*rows: bytes, columns: int) -> bytes:
    """An event that inserts rows, each with its bitmap of nulls."""
    head = bytes([0, 0, 0, 0, WRITE]).ljust(HEADER, b"\0")
    return head + bytes(6 + 2) + b"\x02\0" + bytes([columns, (1 << columns) - 1]) + b"".join(rows)


@pytest.mark.parametrize("digits", range(1, 39))
def test_nulls_that_end_the_last_event(digits: int) -> None:
    """No bytes stand for a null, so what follows the last row is read, and ignored."""
    column = Stored("n", table_maps.DECIMAL, size=digits, scale=digits // 3)
    one = bytearray(width(column))
    one[0] ^= 0x80
    images = read_images([event(b"\0" + one, b"\x01", columns=1)], [column])
    found = read_values(images.data, column, images.columns[0], texts=None, kind="decimal")  # type: ignore[arg-type]
    assert found.column.to_pylist() == [Decimal(0), None]
    assert found.bad == {}
