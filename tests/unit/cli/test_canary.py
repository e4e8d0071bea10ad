"""A secret, wherever it can be written, is on no screen, in no log and in no answer ever after."""

from __future__ import annotations

import json
import re
import traceback
from typing import TYPE_CHECKING

import pytest

from velostream.cli.prompt.repl import DiscreetHistory
from velostream.config import load
from velostream.connectors.registry import default_registry
from velostream.errors import VelostreamError
from velostream.location import SourceText
from velostream.runtime.instance import Instance
from velostream.runtime.logs import log_to, stop
from velostream.runtime.socket.client import Client
from velostream.runtime.socket.server import described
from velostream.secrets import redact, redact_statement, secret
from velostream.sql import EmptyCatalog, check_script

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Velo

WORD = "canarybird"
"""A word like others: nothing but the place where it is written tells that it is a secret."""
ODD = "cAn4ry/b:ir?d&w=1@x"
"""What a password may be, and what ends other parts of a URI."""

GOOD = {
    "user and password": "CREATE SOURCE s (a INT) FROM postgresql://bob:{0}@host:5432/db?table=t",
    "password, quoted URI": "CREATE SOURCE s (a INT) FROM 'postgresql://bob:{0}@host/db?table=t'",
    "token as user": "CREATE SOURCE s (a INT) FROM postgresql://{0}@host/db?table=t",
    "token as user, empty password": "CREATE SOURCE s (a INT) FROM postgresql://{0}:@host/db?table=t",
    "parameter": "CREATE SOURCE s (a INT) FROM postgresql://host/db?password={1}&table=t",
    "parameter, quoted": 'CREATE SOURCE s (a INT) FROM postgresql://host/db?table=t&password="{0}"',
    "signature": "CREATE SOURCE s (a INT) FROM https://host/rows.json?sv=1&sig={1}",
    "amazon": "CREATE SOURCE s (a INT) FROM https://host/rows.json?X-Amz-Signature={1}&X-Amz-Date=1",
    "api key": "CREATE SOURCE s (a INT) FROM https://host/rows.json?api_key={1}",
    "access key": "CREATE SOURCE s (a INT) FROM https://host/rows.json?a=1&access_key={1}",
    "token": "CREATE SOURCE s (a INT) FROM https://host/rows.json?a=1&token={1}",
    "property": '<db> WITH ("password" = "{0}")',
    "property, other quotes": "<db> WITH ('password'='{0}')",
    "property, lines": "<db>\nWITH ('password'\n =\n '{0}')",
    "kafka": "<kafka> WITH ('sasl.password' = '{0}')",
    "jaas": "<kafka> WITH ('sasl.mechanism' = 'PLAIN', 'sasl.jaas.config' = "
    '\'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{0}";\')',
    "headers": "CREATE SOURCE s (a INT) FROM https://host/rows.json WITH "
    "('headers' = '{{\"Authorization\": \"Bearer {0}\"}}')",
    "nested": 'CREATE SOURCE s (a INT) FROM postgresql://host/db?query="SELECT ?" WITH '
    "('query.params' = '[{{\"password\": \"{0}\"}}]')",
    "auth": "CREATE SOURCE s (a INT) FROM https://host/rows.json WITH ('auth' = '{0}')",
    "sink": 'CREATE STREAM s AS SELECT * FROM kafka://t WITH ("sink" = "postgresql://bob:{0}@host/db?table=t")',
    "insert": "INSERT INTO postgresql://bob:{0}@host/db?table=t SELECT * FROM kafka://t",
}
"""{{0}} takes any secret, {{1}} one that may stand in a parameter without quotes."""

BAD = {
    "misspelt": "<db> WITH ('pasword' = '{0}')",
    "misspelt parameter": "CREATE SOURCE s (a INT) FROM postgresql://host/db?table=t&passwort={1}",
    "unknown": "<db> WITH ('pw' = '{0}')",
    "unknown parameter": "CREATE SOURCE s (a INT) FROM postgresql://host/db?table=t&pw={1}",
    "unquoted": "<db> WITH ('password' = {0})",
    "unquoted, with a space": "<db> WITH ('password' = x {0})",
    "nothing quoted": "<db> WITH (password = {0})",
    "name not quoted": "<db> WITH (password = '{0}')",
    "not closed": "<db> WITH ('password' = '{0})",
    "not closed, double": '<db> WITH ("password" = "{0})',
    "no equals": "<db> WITH ('password' '{0}')",
    "colon": "<db> WITH ('password': '{0}')",
    "no parenthesis": "<db> WITH ('password' = '{0}'",
    "twice": "<db> WITH ('password' = 'x1', 'password' = '{0}')",
    "more after it": "CREATE SOURCE s FROM postgresql://bob:{0}@host/db?table=t WITH ('x' = 'y') what",
    "no such scheme": "CREATE SOURCE s (a INT) FROM postgrseql://bob:{0}@host/db?table=t",
    "wrong kind": "<kafka> WITH ('sasl.mechanism' = 'X', 'sasl.password' = '{0}')",
    "module": "<kafka> WITH ('sasl.jaas.config' = 'com.evil required password=\"{0}\";')",
}


def written(form: str, canary: str) -> str:
    text = form.format(canary, canary.replace("&", "%26").replace("?", "%3F"))
    database, kafka = ("postgresql://host/db?table=t", "kafka://t")
    text = text.replace("<db>", f"CREATE SOURCE s (a INT) FROM {database}")
    return text.replace("<kafka>", f"CREATE SOURCE s (a INT) FROM {kafka}")


def leaks(text: str, canary: str) -> bool:
    """Whether any part of the canary that tells something is in the text."""
    return any(part in text for part in re.split(r"[^A-Za-z0-9]", canary) if len(part) > 3)


@pytest.mark.parametrize("canary", [WORD, ODD])
def test_no_command_shows_a_secret(velo: Velo, data_dir: Path, canary: str) -> None:
    texts = [written(form, canary).replace(" s ", f" s{n} ") for n, form in enumerate(GOOD.values())]
    (data_dir.parent / "app.sql").write_text(";\n".join([*texts, "SELECT * FROM nowhere"]))
    for command in (("check", "app.sql"), ("check", "app.sql", "--format", "json")):
        ran = velo(*command)
        assert ran.code != 0
        assert not leaks(ran.out + ran.err, canary), ran.out + ran.err
    for number, text in enumerate(texts):
        assert not leaks(redact_statement(text), canary)
        explained = velo("explain", text)
        assert not leaks(explained.out + explained.err, canary), explained.out + explained.err
        if text.startswith("CREATE SOURCE"):
            made = velo("sql", text)
            assert made.code == 0, made.err
            assert "write ${env:NAME} or ${file:path} instead" in made.err
            assert not leaks(made.out + made.err, canary)
            again = velo("sql", f"{text}; SHOW CREATE s{number}; EXPLAIN SELECT * FROM s{number}", "--debug")
            assert not leaks(again.out + again.err, canary), again.out + again.err
    for command in (("sql", "SHOW SOURCES"), ("sql", "DESCRIBE s1"), ("jobs",), ("logs",)):
        for options in ((), ("--format", "json")):
            ran = velo(*command, *options)
            assert not leaks(ran.out + ran.err, canary), (command, ran.out + ran.err)
    for path in data_dir.rglob("*"):
        if path.is_file() and not path.name.startswith("secrets."):
            assert not leaks(path.read_bytes().decode("latin-1"), canary), path


@pytest.mark.parametrize("canary", [WORD, ODD])
@pytest.mark.parametrize("form", [*GOOD.values(), *BAD.values()], ids=[*GOOD, *BAD])
def test_no_error_shows_a_secret(form: str, canary: str) -> None:
    text = f"SELECT 1 FROM nowhere;\n{written(form, canary)}"
    checked = check_script(SourceText(text), EmptyCatalog(), default_registry(), environment={})
    assert checked.errors
    for error in checked.errors:
        shown = [str(error), json.dumps(error.as_dict()), json.dumps(described(error, "")), repr(error)]
        shown.append("".join(traceback.format_exception(error)))
        for each in shown:
            assert not leaks(each, canary), each


@pytest.mark.parametrize("form", BAD.values(), ids=list(BAD))
def test_no_command_shows_a_secret_of_a_wrong_statement(velo: Velo, form: str) -> None:
    for canary in (WORD, ODD):
        for options in ((), ("--debug",)):
            ran = velo("sql", written(form, canary), *options)
            assert ran.code != 0
            assert not leaks(ran.out + ran.err, canary), ran.out + ran.err


@pytest.mark.parametrize("reference", ["${CANARY}", "${env:CANARY}", "${file:canary.txt}"])
def test_what_a_reference_stands_for_is_shown_nowhere(
    velo: Velo, data_dir: Path, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "cAn4ry-of-a-reference"
    monkeypatch.setenv("CANARY", canary)
    (data_dir.parent / "canary.txt").write_text(f"{canary}\n")
    source = "CREATE SOURCE s (a INT) FROM kafka://host:1/t"
    text = f"{source} WITH ('sasl.password' = '{reference}', 'sasl.mechanism' = 'X')"
    for command in (
        ("sql", text),
        ("sql", text.replace(", 'sasl.mechanism' = 'X'", "")),
        ("sql", "SHOW CREATE s"),
    ):
        ran = velo(*command, "--debug")
        assert canary not in ran.out + ran.err
    for path in data_dir.rglob("*"):
        assert not path.is_file() or canary.encode() not in path.read_bytes(), path
    assert reference in velo("sql", "SHOW CREATE s").out


def test_the_socket_the_log_and_messages_of_others(tmp_path: Path) -> None:
    handler = log_to(tmp_path / "logs", "info")
    try:
        with Instance(load(None, data_dir=tmp_path / "data")) as database:
            database.sql(f"CREATE SOURCE s (a INT) FROM postgresql://bob:{ODD}@host/db?table=t")
            client = Client(database.directory.root)
            assert not leaks(str(client.sql("SHOW CREATE s").rows()), ODD)
            with pytest.raises(VelostreamError) as raised:
                client.sql(
                    f"CREATE SOURCE s (a INT) FROM postgresql://bob:{ODD}@host/db?table=t WITH ('x' = 'y')"
                )
            assert not leaks(str(raised.value), ODD)
        import structlog

        # A library that quotes the password in a form of its own.
        structlog.get_logger("velostream.test").warning("refused", reason=f"login failed for bob/{ODD}/x")
        try:
            raise ValueError(f"cannot use {ODD}")
        except ValueError:
            structlog.get_logger("velostream.test").exception("failed")
    finally:
        stop(handler)
    logged = (tmp_path / "logs" / "velostream.log").read_text()
    assert "login failed" in logged
    assert "cannot use ***" in logged
    assert not leaks(logged, ODD)
    assert not leaks(str(VelostreamError("no", detail=f"refused {ODD}", hint=f"not {ODD}")), ODD)


def test_the_history_keeps_no_secret(tmp_path: Path) -> None:
    history = DiscreetHistory(str(tmp_path / "history"))
    for form in (*GOOD.values(), *BAD.values()):
        history.store_string(written(form, WORD))
    history.store_string("SELECT token FROM t WHERE secret > 1")
    history.store_string("CREATE SOURCE s FROM kafka://t WITH ('sasl.password' = '${env:P}')")
    kept = (tmp_path / "history").read_text()
    unknown = [form for name, form in BAD.items() if name in ("unknown", "unknown parameter", "no equals")]
    assert kept.count(WORD) <= len(unknown)
    assert "SELECT token" in kept
    assert "${env:P}" in kept


SECRET_NAMES = """
    password passwd pwd passphrase sasl.password ssl.key.password secret client_secret token authToken
    session.token api_key apiKey X-Amz-Signature sig access_key AWSAccessKeyId sasl.jaas.config
    authorization headers auth pasword passwrod secrt toekn credentails
"""
OTHER_NAMES = """
    key topic username table schema path partitions query.params format ssl.key.location
    sasl.oauthbearer.token.endpoint.url
"""


def test_which_names_are_names_of_secrets() -> None:
    assert [name for name in SECRET_NAMES.split() if not secret(name)] == []
    assert [name for name in OTHER_NAMES.split() if secret(name)] == []


def test_what_is_no_secret_is_shown() -> None:
    for text in (
        "kafka://host:9092/orders",
        "file:///data/a@b.csv",
        "s3://bucket/x@y/*.parquet",
        "postgresql://host:5432/db?schema=public&table=users&where=\"mail = 'a@b'\"",
        'expected a value, found "x"',
        'property "password" cannot be "***": it is too short',
        "CREATE SOURCE s FROM kafka://t WITH ('sasl.password' = '${env:P}')",
        "sql://duckdb:memory?query=\"SELECT 'a@b'\"",
    ):
        assert redact(text) == text
        assert redact_statement(text) == text
