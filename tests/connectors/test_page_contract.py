"""The source that docs/connectors.md begins with passes the contract, as the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from velostream.connectors.registry import default_registry

pytestmark = pytest.mark.spark
PAGE = Path(__file__).parents[2] / "docs" / "connectors.md"


def shown(*classes: str) -> dict[str, Any]:
    """What the blocks of the page that have these classes define."""
    names: dict[str, Any] = {"__name__": __name__}
    for block in re.findall(
        r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        if any(f"class {name}(" in block for name in classes):
            exec(compile(block, str(PAGE), "exec"), names)
    default_registry().forget("tickets")
    return names


NAMES = shown("TicketSource", "TestTickets")
TestTickets = NAMES["TestTickets"]


@pytest.fixture(autouse=True)
def tickets():
    default_registry().register(NAMES["TicketConnector"])
    yield
    default_registry().forget("tickets")
