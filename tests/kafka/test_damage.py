"""Whatever happens to one file of a data directory: the same result, or repaired, or refused by name."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest
from damage_world import KINDS, World, judged, kind_of

from velostream.connectors.files.spool import merges, spool

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from damage_world import Results

    from velostream.devtools.broker.process import BrokerProcess

pytestmark = pytest.mark.sampled(3)


@pytest.fixture(scope="module")
def world(
    spark,
    broker: BrokerProcess,
    tmp_path_factory: pytest.TempPathFactory,
    rounds: Callable[[int, int], int],
) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        # Journals are shortened and segments merged after a few steps, so that it happens here.
        patch.setattr(spool, "COMPACT_ENTRIES", 6)
        patch.setattr(merges, "FEWEST", 3)
        made = World(tmp_path_factory.mktemp("world"), broker.address, whole=rounds(0, 1) == 1)
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
    assert {kind for kind in missing if "delta" not in kind} == set()
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
        # Two of each kind here, and more than 500 in `make soak`; of files of tables, most without jobs.
        tried[harm.kind] += 1
        if tried[harm.kind] > rounds(2, 24):
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
    assert total >= rounds(40, 500)


def test_a_table_that_is_put_back_as_it_was(world: World, expected: tuple[Results, Results]) -> None:
    """What was made of more of it is made anew, of what is there now."""
    world.restore_outputs()
    found = world.with_older("people", world.root / "harmed")
    assert found["people"] != expected[0].rows["people"]
    assert found["joined"] == found["the same asked"]
