from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from velostream.devtools.demo import story as demo_story

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Velo

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.sql")), ids=lambda path: path.name)
def test_an_example_is_right(velo: Velo, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    ran = velo("check", "--connect", str(path))
    assert ran.code == 0, ran.err
    assert "not executed" not in ran.err


def test_the_demo_and_the_example_tell_the_same_story(tmp_path: Path) -> None:
    demo_story.write_reference(tmp_path)
    written = (tmp_path / demo_story.REFERENCE).read_text()
    assert written == (EXAMPLES / demo_story.REFERENCE).read_text()
