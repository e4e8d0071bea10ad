"""What every source and sink must do, as tests: derive a class, and say how rows come and what is there.

    from velostream.testing.contract import Row, SourceContract, World

    class TestMine(SourceContract):
        @pytest.fixture
        def world(self, tmp_path):
            return Mine(tmp_path)

The tests of all connectors that come with Velostream derive from the same classes. They need pytest, and are
driven by the traits and capabilities of the source; what a source cannot do is declared in `World.gaps`.
"""

from __future__ import annotations

from velostream.testing.contract.sinks import COLUMNS, Place, SinkContract
from velostream.testing.contract.sources import Row, SourceContract, World
from velostream.testing.contract.statements import sink_of, source_of

__all__ = ["COLUMNS", "Place", "Row", "SinkContract", "SourceContract", "World", "sink_of", "source_of"]
