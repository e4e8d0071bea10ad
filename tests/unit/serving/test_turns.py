from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from velostream.serving.columns.turns import short_turns

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def usual() -> Iterator[float]:
    found = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield sys.getswitchinterval()
    sys.setswitchinterval(found)


def test_turns_are_short_until_the_last_writer_has_left(usual: float) -> None:
    with short_turns():
        short = sys.getswitchinterval()
        assert short < usual
        with short_turns():
            assert sys.getswitchinterval() == short
        assert sys.getswitchinterval() == short
    assert sys.getswitchinterval() == usual


def test_turns_are_as_before_after_a_commit_that_fails(usual: float) -> None:
    with pytest.raises(ValueError, match="refused"), short_turns():
        raise ValueError("refused")
    assert sys.getswitchinterval() == usual


@pytest.mark.usefixtures("usual")
def test_turns_that_are_shorter_stay() -> None:
    sys.setswitchinterval(0.0005)
    with short_turns():
        assert sys.getswitchinterval() == pytest.approx(0.0005)
