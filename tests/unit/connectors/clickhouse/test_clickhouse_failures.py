"""Errors of ClickHouse by their code: what is tried again, and what a person has to change."""

from __future__ import annotations

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError

from velostream.connectors.clickhouse.client.failures import error_of


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (159, "source.network"),  # timeout exceeded
        (202, "source.network"),  # too many simultaneous queries
        (210, "source.network"),  # network error
        (241, "source.network"),  # memory limit exceeded
        (242, "source.network"),  # read-only for now
        (252, "source.network"),  # too many parts
        (394, "source.network"),  # killed
        (999, "source.network"),  # the keeper
        (497, "source.auth"),
        (516, "source.auth"),
        (60, "source.missing"),
        (81, "source.missing"),
        (6, "source.data"),
        (27, "source.data"),
        (349, "source.data"),
        (47, "source.config"),  # unknown identifier
        (62, "source.config"),  # syntax error
    ],
)
def test_codes(number: int, code: str) -> None:
    error = error_of(DatabaseError(f"Code: {number}. DB::Exception: said. (NAME) (version 1)"), "cannot read")
    assert error.code == code
    assert error.message == "cannot read: said"


@pytest.mark.parametrize(
    "exc", [OSError("refused"), OperationalError("Error Connection refused executing HTTP request")]
)
def test_without_a_code_it_is_about_the_connection(exc: Exception) -> None:
    assert error_of(exc, "cannot read").code == "source.network"
