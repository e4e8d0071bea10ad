"""Lets a script of this folder import the package it belongs to, wherever it is started."""

from __future__ import annotations

import sys
from pathlib import Path


def here() -> None:
    """Put the project's root on the path."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
