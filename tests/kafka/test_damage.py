"""Whatever happens to one file of a data directory: the same result, or repaired, or refused by name."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest
from damage_world import KINDS, World, judged, kind_of

from velostream.connectors.file import spool
from velostream.runtime.jars import DELTA_JARS, cached

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from damage_world import Results

    from velostream.runtime.broker import BrokerProcess


@pytest.fixture(scope="module")
def world(spark, broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        # Journals are shortened after a few entries, so that it happens here.
        patch.setattr(spool, "_COMPACT_ENTRIES", 6)
        made = World(tmp_path_factory.mktemp("world"), broker.address, delta=cached(DELTA_JARS))
        made.build()
        yield made


@pytest.fixture(scope="module")
def expected(world: World) -> tuple[Results, Results]:
    first, then = world.expected(world.root / "unharmed")
    assert not first.refused
    assert not then.refused
    assert then.rows != first.rows, "something happened while nobody looked"
    return first, then


def test_every_kind_of_file_is_in_the_world(world: World) -> None:
    missing = KINDS.keys() - set(world.files().values())
    assert all("delta" in kind for kind in missing) or not missing, missing
    with pytest.raises(AssertionError, match="a new kind of file"):
        kind_of("jobs/1-t/sink/invented")


@pytest.mark.timeout(7000)
def test_harm_to_one_file(
    world: World,
    expected: tuple[Results, Results],
    rng: random.Random,
    rounds: Callable[[int, int], int],
) -> None:
    harms = world.harms(rng, places=rounds(1, 3))
    rng.shuffle(harms)
    tried: Counter[str] = Counter()
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    failures: list[str] = []
    for harm in harms:
        # A sample of each kind here, and everything in `make soak`; of files of tables, most without jobs.
        tried[harm.kind] += 1
        if tried[harm.kind] > rounds(3, 10_000):
            continue
        jobs = harm.path.startswith("jobs/") or rng.random() < rounds(1, 4) / 10
        found = world.tried(harm, world.root / "harmed", full=jobs)
        try:
            outcomes[harm.kind][judged(harm, *found, expected)] += 1
        except AssertionError as exc:
            failures.append(str(exc).splitlines()[0])
    total = sum(sum(each.values()) for each in outcomes.values())
    for kind, counts in sorted(outcomes.items()):
        print(f"{kind:24}", *(f"{count:5} {outcome}" for outcome, count in sorted(counts.items())))
    print(f"{total} harms")
    assert not failures, "\n".join(failures)
    assert total >= rounds(50, 500)
