"""Errors of PostgreSQL by their SQLSTATE: what is tried again, and what a person has to change."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.errors import lookup

from velostream.connectors.postgres.client.failures import error_of


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("08006", "source.network"),  # the connection failed
        ("40001", "source.network"),  # could not serialize
        ("40P01", "source.network"),  # deadlock
        ("53300", "source.network"),  # too many connections
        ("55P03", "source.network"),  # lock not available
        ("57014", "source.network"),  # cancelled, or longer than statement_timeout
        ("57P01", "source.network"),  # the server is shut down
        ("57P03", "source.network"),  # the server is starting
        ("58030", "source.network"),  # its disk
        ("25006", "source.network"),  # a standby, until it is promoted
        ("28P01", "source.auth"),
        ("28000", "source.auth"),
        ("42501", "source.auth"),
        ("42P01", "source.missing"),
        ("3F000", "source.missing"),
        ("3D000", "source.missing"),
        ("22003", "source.data"),
        ("22P02", "source.data"),
        ("42601", "source.config"),
        ("42703", "source.config"),
        ("0A000", "source.config"),
    ],
)
def test_states(state: str, code: str) -> None:
    assert error_of(lookup(state)("said"), "cannot read").code == code


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("connection to server at x failed: Connection refused", "source.network"),
        ('FATAL:  password authentication failed for user "u"', "source.auth"),
        ("FATAL:  no pg_hba.conf entry for host", "source.auth"),
        ('FATAL:  database "nowhere" does not exist', "source.missing"),
        ("SSL error: certificate verify failed", "source.config"),
        ('server certificate for "a" does not match host name "b"', "source.config"),
    ],
)
def test_words_while_connecting(said: str, code: str) -> None:
    assert error_of(psycopg.OperationalError(said), "cannot connect").code == code
