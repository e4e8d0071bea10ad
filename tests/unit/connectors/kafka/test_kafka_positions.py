"""Which of two records is later, and what a source remembers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from velostream.connectors.base import SourceContext
from velostream.connectors.kafka.client.cluster import Cluster
from velostream.connectors.kafka.options import KafkaOptions
from velostream.connectors.kafka.read.notes import Gap, SourceMemory
from velostream.connectors.kafka.read.offsets import Positions
from velostream.connectors.kafka.read.source import KafkaSource


@pytest.fixture
def source(tmp_path):
    return KafkaSource(KafkaOptions.model_validate({"topic": "t"}), SourceContext(spool=tmp_path))


def position(offset, micros, part):
    return f"{offset:019d}{micros:019d}{part}"


def sequence(source, records):
    """Records, given in any order, as they follow each other."""
    ranks = source.order(pa.chunked_array([[position(*record) for record in records]])).to_pylist()
    assert len(set(ranks)) == len(ranks)
    return [record for _, record in sorted(zip(ranks, records, strict=True))]


def test_in_a_partition_the_offset_decides_whatever_the_clock_says(source):
    records = [(0, 900, "t/0"), (1, 100, "t/0"), (2, 500, "t/0")]
    assert sequence(source, records[::-1]) == records


def test_across_partitions_time_decides(source, rng):
    records = [(7, 100, "t/1"), (3, 200, "t/0"), (8, 300, "t/1"), (4, 400, "t/0")]
    for _ in range(20):
        rng.shuffle(shuffled := list(records))
        assert sequence(source, shuffled) == records


def test_the_order_never_goes_against_a_partition(source, rng):
    records = [
        (offset, rng.randint(0, 1000), f"t/{part}")
        for part in range(4)
        for offset in range(rng.randint(1, 30))
    ]
    rng.shuffle(records)
    ordered = sequence(source, records)
    for part in range(4):
        offsets = [offset for offset, _, name in ordered if name == f"t/{part}"]
        assert offsets == sorted(offsets)


def test_what_is_remembered_is_there_again(tmp_path):
    memory = SourceMemory(tmp_path)
    assert memory.start is None
    memory.began({"t/0": 5}, {"t": "id1"})
    memory.began({"t/0": 9, "t/1": 0}, {"t": "id1"})
    memory.lost(Gap("t/0", 5, 8, "why"))
    memory.made_again("t", "id2", {"t/0": 20})
    again = SourceMemory(tmp_path)
    assert again.start == {"t/0": 5, "t/1": 0}
    assert again.topics == {"t": "id2"}
    assert (again.shift("t/0"), again.shift("t/1")) == (20, 0)
    assert again.gaps == [Gap("t/0", 5, 8, "why")]
    again.forget_gaps({"t/0": 8})
    assert SourceMemory(tmp_path).gaps == []


def test_a_batch_is_shared_out_among_partitions(tmp_path):
    options = KafkaOptions.model_validate({"topic": "t"})
    positions = Positions(options, SourceContext(spool=tmp_path, most_rows=10), Cluster(options))
    have, ends = {"t/0": 0, "t/1": 5, "t/2": 7}, {"t/0": 90, "t/1": 15, "t/2": 7}
    reached = positions.bounded(have, ends)
    assert reached == {"t/0": 9, "t/1": 6, "t/2": 7}
    while reached != ends:
        further = positions.bounded(reached, ends)
        assert all(reached[part] <= further[part] <= ends[part] for part in ends)
        assert further != reached
        reached = further
