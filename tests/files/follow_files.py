"""Follows files until it is killed: `python follow_files.py pattern spool`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from files_model import open_source
from velostream.connectors.files.spool import merges, spool

merges.FEWEST = 2
spool.COMPACT_ENTRIES = 10

source = open_source(sys.argv[1], Path(sys.argv[2]))
offset = None
print("ready", flush=True)
while True:
    offset = source.latest(offset)
    source.commit({"spool": max(source.spool.oldest, offset["spool"] - 1)})
