"""The trades that tests of tables begin with, and what they do with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from velostream.runtime.instance import Instance

QUICK = "WITH ('file.debounce' = '50ms')"

TRADES = """\
trade_id,user_id,symbol,quantity,price
T1,u1,AAPL,10,150.25
T2,u2,MSFT,5,300.10
T3,u1,AAPL,3,151.00
T4,,IBM,7,
"""


def append(path: Path, text: str) -> None:
    with path.open("a") as out:
        out.write(text)


def rows(database: Instance, table: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in database.table(table).rows()), key=repr)


def settle(database: Instance) -> None:
    assert database.wait_idle(60), database.jobs()
