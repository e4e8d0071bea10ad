"""A schema registry for the tests of formats."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from schema_registry import SchemaRegistry, running


@pytest.fixture
def registry():
    """The registry, with its address as `url`."""
    found = SchemaRegistry()
    with running(found) as url:
        found.url = url
        yield found
