"""`velo topic`, and SQL on topics, as a user types them: against a real broker, without and with Spark."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pexpect
import pytest
from commands import PATIENCE, VELO

if TYPE_CHECKING:
    from pathlib import Path

    from commands import Velo
    from tests.conftest import WaitUntil

    from velostream.devtools.broker.process import BrokerProcess

pytestmark = pytest.mark.sampled(3)

ORDERS = """
{"order_id":"o1","user_id":"ann","amount":12.50}
{"order_id":"o2","user_id":"bob","amount":7.25}
{"order_id":"o3","user_id":"ann","amount":30.00}
"""


# --- the command ----------------------------------------------------------------------------------------


def test_topics_are_created_and_listed(velo: Velo) -> None:
    made = velo("topic", "create", "listed", "--partitions", "3", "--topic-config", "cleanup.policy=compact")
    assert 'topic "listed" created with 3 partitions' in made.stderr
    velo("topic", "produce", "listed", "--key", "order_id", given=ORDERS)
    (found,) = [each for each in velo.json("topic", "list") if each["topic"] == "listed"]
    assert found == {"topic": "listed", "partitions": 3, "replication": 1, "records": 3}
    assert "listed" in velo("topic", "list").stdout
    again = velo("topic", "create", "listed", code=2)
    assert "exists already" in again.stderr
    assert "exists already" in velo("topic", "create", "listed", "--if-not-exists").stderr
    wrong = velo("topic", "create", "other", "--topic-config", "cleanup.polcy=compact", code=1)
    assert "cleanup.polcy" in wrong.stderr


def test_json_lines_are_written_as_they_are(velo: Velo, topic: str) -> None:
    done = velo("topic", "produce", topic, "--key", "order_id", "--header", "source=test", given=ORDERS)
    assert f'3 records written to topic "{topic}"' in done.stderr
    shown = velo.json("topic", "show", topic)
    assert [record["value"] for record in shown] == ORDERS.split()
    assert [record["key"] for record in shown] == ["o1", "o2", "o3"]
    assert [record["offset"] for record in shown] == [0, 1, 2]
    assert all(record["headers"] == {"source": "test"} and record["partition"] == 0 for record in shown)
    assert all(str(record["timestamp"]).startswith("20") for record in shown)


def test_csv_becomes_json(velo: Velo, topic: str) -> None:
    rows = 'id,zip,amount,name,ok\n1,01234,12.50,"a, ""b""",true\n2,90210,,é,false\n'
    velo("topic", "produce", topic, "--format", "csv", "--key", "zip", given=rows)
    assert velo.values(topic) == [
        '{"id":1,"zip":"01234","amount":12.50,"name":"a, \\"b\\"","ok":true}',
        '{"id":2,"zip":"90210","amount":null,"name":"é","ok":false}',
    ]
    assert [record["key"] for record in velo.json("topic", "show", topic)] == ["01234", "90210"]


def test_text_is_text(velo: Velo, topic: str) -> None:
    velo("topic", "produce", topic, "--format", "text", given="first\n\n  third\n")
    assert velo.values(topic) == ["first", "", "  third"]


@pytest.mark.parametrize(
    ("arguments", "given", "told"),
    [
        ((), '{"a":1}\nnonsense\n', "line 2 is not JSON"),
        ((), "[1]\n", "line 1 is JSON, but no object"),
        (("--format", "csv"), "a,b\n1\n", "row 2 has 1 cells"),
        (("--format", "csv", "--key", "bb"), "a,b\n1,2\n", 'did you mean "b"?'),
        (("--key", "order_idd"), '{"order_id":1}\n', 'did you mean "order_id"?'),
    ],
)
def test_lines_that_cannot_be_read(
    velo: Velo, topic: str, arguments: tuple[str, ...], given: str, told: str
) -> None:
    done = velo("topic", "produce", topic, *arguments, given=given, code=1)
    assert told in done.stderr
    assert "written to topic" in done.stderr


@pytest.fixture
def ten(velo: Velo, topic: str) -> str:
    """The topic, with the texts 0 to 9."""
    velo("topic", "produce", topic, "--format", "text", given="".join(f"{n}\n" for n in range(10)))
    return topic


def test_the_oldest_and_the_newest_are_shown(velo: Velo, ten: str) -> None:
    def shown(*arguments: str) -> list[str]:
        return [str(each["value"]) for each in velo.json("topic", "show", ten, *arguments)]

    assert shown() == list("0123456789")
    assert shown("--limit", "3") == list("012")
    assert shown("--from", "end", "--limit", "3") == list("789")
    assert shown("--from", "end") == list("0123456789")
    table = velo("topic", "show", ten, "--limit", "1").stdout.splitlines()
    assert table[0].split() == ["partition", "offset", "timestamp", "key", "headers", "value"]
    rows = list(csv.DictReader(io.StringIO(velo("topic", "show", ten, "--format", "csv").stdout)))
    assert [row["value"] for row in rows] == list("0123456789")


def test_several_partitions_are_shown_in_the_order_of_their_times(velo: Velo) -> None:
    velo("topic", "create", "spread", "--partitions", "3")
    for number in range(4):
        velo("topic", "produce", "spread", "--key", "k", given=f'{{"k":{number}}}\n')
    assert velo.values("spread") == [f'{{"k":{number}}}' for number in range(4)]
    newest = velo.json("topic", "show", "spread", "--from", "end", "--limit", "1")
    assert [each["key"] for each in newest] == ["3"]


def test_bytes_that_are_no_text_and_tombstones(velo: Velo, topic: str, broker: BrokerProcess) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(topic, b"\xff\x00", key=b"k", headers={"h": b"\xfe", "none": None})
    producer.produce(topic, None, key=b"k")
    assert producer.flush(30) == 0
    first, second = velo.json("topic", "show", topic)
    assert (first["value"], first["headers"]) == ("\\xff00", {"h": "\\xfe", "none": None})
    assert (second["key"], second["value"]) == ("k", None)


def test_new_records_are_followed(velo: Velo, ten: str) -> None:
    following = velo.started("topic", "show", ten, "--follow", "--limit", "12", "--format", "json")
    assert following.stdout is not None
    try:
        first = [json.loads(following.stdout.readline())["value"] for _ in range(10)]
        velo("topic", "produce", ten, "--format", "text", given="new\nnewer\nnewest\n")
        rest = [json.loads(line)["value"] for line in following.stdout]
        assert following.wait(PATIENCE) == 0
    finally:
        following.kill()
        following.communicate()
    assert first + rest == [*"0123456789", "new", "newer"]


@pytest.mark.parametrize("form", ["text", "csv"])
def test_lines_are_sent_as_they_arrive(velo: Velo, topic: str, wait_until: WaitUntil, form: str) -> None:
    velo("topic", "create", f"{topic}-{form}", "--partitions", "1")
    topic = f"{topic}-{form}"
    producing = velo.started("topic", "produce", topic, "--format", form)
    assert producing.stdin is not None
    try:
        if form == "csv":
            producing.stdin.write("word\n")
        for count, text in enumerate(["one", "two"], start=1):
            producing.stdin.write(f"{text}\n")
            producing.stdin.flush()
            wait_until(lambda count=count: len(velo.values(topic)) == count, PATIENCE)
    finally:
        producing.communicate()
    assert producing.returncode == 0


def test_errors_help(velo: Velo, topic: str) -> None:
    near = topic[:-1] + "z"
    assert f'did you mean "{topic}"?' in velo("topic", "show", near, code=1).stderr
    assert f"velo topic create {near}" in velo("topic", "produce", near, code=1).stderr
    away = velo("topic", "list", "--bootstrap", "127.0.0.1:1", code=3).stderr
    assert 'kafka at "127.0.0.1:1" cannot be reached' in away
    assert "velo broker" in away
    assert 'did you mean "list"?' in velo("topic", "lst", code=2).stderr
    assert "security.protocol" in velo("topic", "list", "--with", "security.protocl=SSL", code=2).stderr


def test_a_topic_is_deleted_by_who_says_so(velo: Velo, ten: str) -> None:
    refused = velo("topic", "delete", ten, code=2).stderr
    assert f'topic "{ten}" with 10 records is not deleted without being asked for' in refused
    assert "--yes" in refused
    for answer, told in (("n", f'topic "{ten}" stays'), ("y", f'topic "{ten}" with 10 records deleted')):
        terminal = pexpect.spawn(
            VELO[0],
            [*VELO[1:], "topic", "delete", ten],
            env=velo.environment,
            cwd=str(velo.folder),
            encoding="utf-8",
            timeout=PATIENCE,
        )
        terminal.expect_exact(f'delete topic "{ten}" with 10 records? [y/N]')
        terminal.sendline(answer)
        terminal.expect_exact(told)
        terminal.expect(pexpect.EOF)
        terminal.close()
        assert terminal.exitstatus == 0
    assert f'"{ten}" does not exist' in velo("topic", "delete", ten, "--yes", code=1).stderr
    velo("topic", "create", ten)
    assert "with 0 records deleted" in velo("topic", "delete", ten, "--yes").stderr


def test_without_the_extra_it_says_what_to_install(velo: Velo, tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "confluent_kafka.py").write_text("raise ImportError('not here')\n")
    path = os.pathsep.join(filter(None, [str(tmp_path / "without"), os.environ.get("PYTHONPATH", "")]))
    velo.environment["PYTHONPATH"] = path
    for arguments in (("list",), ("show", "t"), ("create", "t"), ("produce", "t")):
        assert "velostream[kafka]" in velo("topic", *arguments, code=2).stderr


def test_it_answers_at_once_and_without_spark(velo: Velo, ten: str) -> None:
    script = (
        "import sys; from velostream.cli.main import run; run(sys.argv[1:]);"
        "print(*sys.modules, file=sys.stderr)"
    )
    taken = []
    for arguments in (("list",), ("show", ten, "--limit", "3")):
        began = time.monotonic()
        velo("topic", *arguments)
        taken.append(time.monotonic() - began)
        done = subprocess.run(
            [sys.executable, "-c", script, "topic", *arguments],
            env=velo.environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        assert not {"pyspark", "py4j"} & {name.partition(".")[0] for name in done.stderr.split()}
    assert min(taken) < 3, taken


# --- SQL ------------------------------------------------------------------------------------------------


def test_rows_of_a_file_are_written_once(velo: Velo, topic: str) -> None:
    (velo.folder / "app.sql").write_text(
        f"INSERT INTO kafka://{topic} (id, n) VALUES (1, 1.50), (2, 2.25);\n"
        f"INSERT INTO kafka://{topic} (id, n) VALUES (1, 1.50), (2, 2.25);\n"
    )
    done = velo("run", "app.sql", "--once")
    assert done.stderr.count("2 records written") == 2, done.stderr
    again = velo("run", "app.sql", "--once")
    assert "done before" in again.stderr
    assert velo.values(topic) == ['{"id":1,"n":1.50}', '{"id":2,"n":2.25}'] * 2
    once_more = velo("sql", f"INSERT INTO kafka://{topic} (id, n) VALUES (3, 1)")
    assert f"1 record written to kafka://{topic}" in once_more.stderr
    assert len(velo.values(topic)) == 5
    velo("sql", "CREATE TABLE p (id INT PRIMARY KEY, n DECIMAL(10,2)); INSERT INTO p VALUES (4, 2), (5, 0.5)")
    copied = velo("sql", f"INSERT INTO kafka://{topic} SELECT id, n FROM p WHERE n < 2")
    assert f"1 record written to kafka://{topic}; EMIT CHANGES would go on" in copied.stderr
    assert velo.values(topic)[-1] == '{"id":5,"n":0.50}'
    assert velo.json("jobs") == []


@pytest.mark.spark
def test_rows_of_a_source_are_written_by_a_job_or_once(velo: Velo, topic: str) -> None:
    (velo.folder / "in.csv").write_text("id,n\n1,2\n3,4\n")
    statement = f"INSERT INTO kafka://{topic} SELECT id, n FROM file://in.csv"
    rows = ['{"id":1,"n":2}', '{"id":3,"n":4}']
    made = velo("sql", statement).stderr
    (job,) = velo.json("jobs")
    assert f"created; it writes new rows until DROP JOB {job['id']}" in made
    assert f"nothing keeps {job['name']} up to date from now on: velo run does" in made
    again = velo("sql", statement).stderr
    assert "was made before by this statement, and goes on until DROP JOB" in again
    assert velo.values(topic) == rows
    other = velo("sql", f"INSERT INTO kafka://{topic} SELECT id FROM file://in.csv", code=1).stderr
    assert f"hint: what was written stays: DROP JOB {job['id']} first" in other

    with (velo.folder / "in.csv").open("a") as file:
        file.write("5,6\n")
    ran = velo("run", "--once").stderr
    assert f'"{job["name"]}" resumed' in ran
    assert velo.values(topic) == [*rows, '{"id":5,"n":6}']
    velo("sql", f"DROP JOB {job['id']}")
    assert "is kept up to date" in velo("run", code=2).stderr
    for query, count in ((statement, 3), (f"{statement} LIMIT 1", 1)):
        assert f"{count} record{'s' * (count > 1)} written to kafka://" in velo("sql", query, "--once").stderr
    assert len(velo.values(topic)) == 7
    assert velo.json("jobs") == []


@pytest.mark.spark
def test_a_select_with_limit_ends(velo: Velo, topic: str) -> None:
    velo("topic", "produce", topic, given=ORDERS)
    newest = velo("sql", f"SELECT order_id, amount FROM kafka://{topic} ORDER BY _offset DESC LIMIT 2").stdout
    assert [line.split() for line in newest.splitlines()[2:]] == [["o3", "30.00"], ["o2", "7.25"]]


@pytest.mark.spark
def test_the_prompt_puts_in_and_looks(velo: Velo, topic: str) -> None:
    child = pexpect.spawn(
        VELO[0],
        [*VELO[1:], "sql"],
        env={**velo.environment, "TERM": "xterm-256color"},
        cwd=str(velo.folder),
        dimensions=(40, 120),
        encoding="utf-8",
        timeout=PATIENCE,
    )

    def typed(line: str) -> None:
        child.expect(r"velo> \x1b\[0m[\s\S]*\x1b\[\?25h")
        child.send(line + "\r")

    try:
        typed(f"INSERT INTO kafka://{topic} (id, name) VALUES (1, 'ann'), (2, 'bob');")
        child.expect("2 records written to kafka")
        typed(f"SELECT name FROM kafka://{topic} ORDER BY id LIMIT 5;")
        child.expect(r"ann[\s\S]*bob[\s\S]*2 rows in ")
        typed(f"SELECT count(*) AS n FROM kafka://{topic} LIMIT 1;")
        child.expect("1 row in ")
    finally:
        child.close(force=True)
