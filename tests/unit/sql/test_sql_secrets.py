"""Errors show the user's line without the passwords in it, the caret where it belongs."""

from __future__ import annotations

import pytest

from velostream.location import SourceText


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SOURCE s FROM postgresql://bob:s3cret@host/db?tabel=u",
        "CREATE SOURCE s FROM postgresql://host/db?password=s3cret&tabel=u",
        "CREATE SOURCE s FROM postgresql://host/db WITH ('password' = 's3cret', 'tabel' = 'u')",
        "CREATE SOURCE s\nFROM postgresql://host/db WITH ('password'\n = 's3\ncret', 'tabel' = 'u')",
    ],
)
def test_the_caret_line_hides_passwords(text):
    start = text.index("tabel")
    line, caret = SourceText(text).location(start, start + 5).caret().splitlines()
    assert "s3cret" not in line
    assert "cret" not in line
    assert line[caret.index("^") : caret.rindex("^") + 1] == "tabel"
