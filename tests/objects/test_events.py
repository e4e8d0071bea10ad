"""Event notifications of a bucket, from a real queue."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import pytest

from queue_server import running
from velostream.connectors.s3.events import keys_in
from velostream.connectors.s3.queue import Keys, signed

if TYPE_CHECKING:
    from tests.conftest import WaitUntil

    from object_store import Bucket
    from velostream import Database


def told(bucket: str, key: str) -> str:
    thing = {"bucket": {"name": bucket}, "object": {"key": quote_plus(key)}}
    return json.dumps({"Records": [{"eventName": "ObjectCreated:Put", "s3": thing}]})


def test_the_signature_is_what_amazons_own_library_makes():
    """The expected one was computed with botocore 1.42."""
    url = "https://sqs.eu-west-1.amazonaws.com/123/events"
    keys, now = Keys("AKID", "SECRET", "TOKEN"), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    made = signed(url, "ReceiveMessage", b'{"QueueUrl": "x"}', keys, "eu-west-1", now)
    expected = "cf1826434a5cc27881e0772b2f402401cc6a868695f73f992d6f8efc411ec498"
    assert made["authorization"].rpartition("Signature=")[2] == expected


@pytest.mark.parametrize(
    ("body", "keys"),
    [
        (told("b", "in/a b+ü.csv"), ["in/a b+ü.csv"]),
        (told("other", "in/a.csv"), []),
        (json.dumps({"Type": "Notification", "Message": told("b", "x.csv")}), ["x.csv"]),
        (json.dumps({"detail": {"bucket": {"name": "b"}, "object": {"key": "a b.csv"}}}), ["a b.csv"]),
        (json.dumps({"Event": "s3:TestEvent", "Bucket": "b"}), []),
        ("no json", []),
        ("[1]", []),
        (json.dumps({"Records": [None, {"s3": {"bucket": {"name": "b"}, "object": {"key": 7}}}]}), []),
    ],
)
def test_what_messages_name(body, keys):
    assert list(keys_in(body, "b")) == keys


@pytest.mark.spark
def test_objects_are_read_when_the_queue_tells(db: Database, bucket: Bucket, wait_until: WaitUntil):
    """Listings are an hour apart."""
    bucket.put("in/a.csv", "id\n1\n")
    with running() as queue:
        said = bucket.said(events=queue.url, poll_interval="1h")
        db.sql(f"CREATE TABLE t AS SELECT id FROM {bucket.uri('in/*.csv')} WITH ({said})")

        def ids() -> list[int]:
            return sorted(row.id for row in db.sql("SELECT id FROM t").rows())

        wait_until(lambda: ids() == [1])
        bucket.put("in/b.csv", "id\n2\n")
        bucket.put("in/no.json", '{"id": 9}')
        queue.send(told(bucket.name, "in/no.json"))
        queue.send(told(bucket.name, "in/b.csv"))
        wait_until(lambda: ids() == [1, 2])
        bucket.put("in/a.csv", "id\n3\n4\n")
        queue.send(told(bucket.name, "in/a.csv"))
        wait_until(lambda: ids() == [2, 3, 4])
        bucket.delete("in/b.csv")
        queue.send(told(bucket.name, "in/b.csv"))
        wait_until(lambda: ids() == [3, 4])
        wait_until(lambda: queue.waiting() == 0)
        db.sql("DROP TABLE t")
