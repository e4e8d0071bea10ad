"""The Kafka guide, pasted into a terminal from an empty folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from terminals import follow

from velostream.devtools.broker.folder import stop
from velostream.devtools.broker.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

GUIDE = Path(__file__).parents[2] / "docs" / "kafka.md"
START = "velo broker start --background\n"

pytestmark = [pytest.mark.spark, pytest.mark.sampled(2)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    stop(tmp_path / ".velostream" / "broker")


def test_the_guide_can_be_pasted(folder: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert text.count(START) == 1
    port = free_port()  # The guide's own port may be taken here.
    elsewhere = f"export VELOSTREAM_KAFKA_BROKERS=127.0.0.1:{port}\n{START.rstrip()} --port {port}\n"
    page = folder / "kafka.md"
    page.write_text(text.replace(START, elsewhere), encoding="utf-8")
    follow(page, folder)
