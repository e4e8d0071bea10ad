"""Secrets written out in statements lie in a file of their own, and come back from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from refusals import refusal
from velostream.runtime.catalog.secrets import KeptSecrets

if TYPE_CHECKING:
    from pathlib import Path

STATEMENTS = (
    "CREATE SOURCE s (a INT) FROM kafka://t WITH ('sasl.password' = 'it''s s3cret', \"user\" = \"me\")",
    "CREATE SOURCE s (a INT) FROM postgresql://me:p%40ss/word@host/db?table=t&sslpassword=x1y2",
    "CREATE TABLE t AS SELECT 'password' AS a, x FROM u WHERE b = 'secret'",
    "CREATE SOURCE s (a INT) FROM kafka://t WITH ('sasl.password' = '${env:PASSWORD}')",
)


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement_comes_back_as_it_was_written(tmp_path: Path, text: str) -> None:
    hidden = KeptSecrets(tmp_path).hide(text)
    assert not any(part in hidden for part in ("s3cret", "ss/word", "x1y2"))
    again = KeptSecrets(tmp_path, read_only=True)
    assert again.show(hidden) == text
    assert KeptSecrets(tmp_path).hide(text) == hidden


def test_statements_without_secrets_need_no_file(tmp_path: Path) -> None:
    kept = KeptSecrets(tmp_path)
    assert [kept.hide(text) for text in STATEMENTS[2:]] == list(STATEMENTS[2:])
    assert list(tmp_path.iterdir()) == []


def test_secrets_that_nothing_refers_to_any_more_are_forgotten(tmp_path: Path) -> None:
    kept = KeptSecrets(tmp_path)
    first, second = (kept.hide(text) for text in STATEMENTS[:2])
    kept.forget_others([second])
    assert b"s3cret" not in (tmp_path / "secrets.json").read_bytes()
    assert kept.show(second) == STATEMENTS[1]
    with refusal("data_dir.corrupt", "secrets.json"):
        kept.show(first)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    hidden = KeptSecrets(tmp_path).hide(STATEMENTS[0])
    for path in tmp_path.iterdir():
        path.unlink()
    with refusal("data_dir.corrupt", "secrets.json"):
        KeptSecrets(tmp_path).show(hidden)
