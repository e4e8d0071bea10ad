"""Records as one text: whatever bytes they hold, the same records come out."""

from __future__ import annotations

from itertools import islice

from velostream.formats.records import join_records, separators, split_text

AWKWARD = b"a\n\x1e\x1f\x1d\x1c\x1e\x1f\n"


def test_records_that_hold_every_separator(rng):
    marks = list(islice(separators(), 30))
    for _ in range(200):
        records = [b"".join(rng.choice([*marks, b"x", b"\x1e0", b"\n"]) for _ in range(rng.randrange(1, 40)))]
        records += [AWKWARD, b"plain", AWKWARD + b"\x1e0\x1f\n"]
        rng.shuffle(records)
        text, separator = join_records(records)
        assert split_text(text, separator) == records
