"""Copies of a data directory at every step of a statement."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Moments:
    """Copies of the data directory, before and after every step: what a kill at that moment leaves."""

    def __init__(self, root: Path, copies: Path) -> None:
        self._root = root
        self._copies = copies
        self.names: list[str] = []

    def take(self, name: str) -> None:
        self.names.append(f"{len(self.names)} {name}")
        # Spark's own files come and go meanwhile, and nothing depends on them.
        passing = shutil.ignore_patterns("socket*", "lock", "checkpoint", "logs", "spark*", "*.new")
        shutil.copytree(self._root, self._copies / self.names[-1], ignore=passing)

    def around(self, patched: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def instead(*arguments: Any, **named: Any) -> Any:
            self.take(f"before {name}")
            result = original(*arguments, **named)
            self.take(f"after {name}")
            return result

        patched.setattr(owner, name, instead)
