"""How long a statement waits between attempts to find its topic."""

from __future__ import annotations

import pytest

from velostream.connectors.base import SourceContext
from velostream.connectors.kafka.options import KafkaOptions
from velostream.connectors.kafka.read.source import KafkaSource
from velostream.errors import ConfigError


def delays(tmp_path, count, **said):
    given = {"topic": "t", **{name.replace("_", "."): value for name, value in said.items()}}
    source = KafkaSource(KafkaOptions.model_validate(given), SourceContext(spool=tmp_path))
    return [source.retry_delay(attempt).total_seconds() for attempt in range(1, count + 1)]


def test_delays_grow_as_the_strategy_says(tmp_path):
    assert delays(tmp_path, 4) == [2, 3, 4.5, 6.75]
    assert delays(tmp_path, 3, topic_retry_strategy="linear", topic_retry_interval="1s") == [1, 2, 3]
    assert delays(tmp_path, 3, topic_retry_strategy="fixed") == [2, 2, 2]


def test_no_delay_is_longer_than_the_longest(tmp_path):
    assert delays(tmp_path, 300, topic_retry_multiplier="10")[-1] == 120
    assert delays(tmp_path, 9, topic_retry_strategy="linear", topic_retry_max_delay="5s")[-1] == 5
    assert delays(tmp_path, 1, topic_retry_strategy="fixed", topic_retry_max_delay="1s") == [1]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("VELOSTREAM_RETRY_STRATEGY", "linear", [2, 4, 6]),
        ("VELOSTREAM_RETRY_INTERVAL_SECS", "4", [4, 6, 9]),
        ("VELOSTREAM_RETRY_MULTIPLIER", "2.0", [2, 4, 8]),
        ("VELOSTREAM_RETRY_MAX_DELAY_SECS", "3", [2, 3, 3]),
    ],
)
def test_the_environment_gives_defaults(tmp_path, monkeypatch, name, value, expected):
    monkeypatch.setenv(name, value)
    assert delays(tmp_path, 3) == expected


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("VELOSTREAM_RETRY_STRATEGY", "sometimes", '"exponential", "linear", "fixed"'),
        ("VELOSTREAM_RETRY_MULTIPLIER", "0.5", "from 1 on"),
        ("VELOSTREAM_RETRY_MULTIPLIER", "much", "from 1 on"),
        ("VELOSTREAM_RETRY_INTERVAL_SECS", "soon", "not a duration"),
        ("VELOSTREAM_RETRY_MAX_DELAY_SECS", "x", "not a duration"),
        ("VELOSTREAM_DEFAULT_PARTITIONS", "0", "whole number from 1 on"),
        ("VELOSTREAM_DEFAULT_REPLICATION_FACTOR", "three", "whole number from 1 on"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, hint: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        KafkaOptions.model_validate({})
    assert name in caught.value.message
    assert f'"{value}"' in caught.value.message
    assert hint in (caught.value.hint or "")
