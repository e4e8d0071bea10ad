"""Which rows of a step a table with unique names takes: all but those that do not fit what it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.databases.write.refused_rows import RefusedRowError, write_taken

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

Change = tuple[int, str | None]
BAD = "bad"


class Table:
    """Names by key. A change without a name deletes; no two rows have the same name, and none is bad."""

    def __init__(self, rows: dict[int, str]) -> None:
        self.rows = rows

    def attempt(self, changes: Sequence[Change]) -> RefusedRowError | None:
        made = dict(self.rows)
        for key, name in sorted(changes, key=lambda change: change[1] is not None):
            if name is None:
                made.pop(key, None)
            elif name == BAD:
                return RefusedRowError("it is bad")
            elif any(taken == name and other != key for other, taken in made.items()):
                return RefusedRowError(f"{name} is taken", for_others=True)
            else:
                made[key] = name
        self.rows = made
        return None


def written(
    before: dict[int, str], changes: Sequence[Change], replaced: dict[int, int]
) -> tuple[dict[int, str], set[int]]:
    """What is there afterwards, and the numbers of the changes that are refused."""
    table = Table(before)
    order = [n for n in range(len(changes)) if n not in set(replaced.values())]
    refused = write_taken(order, replaced, lambda numbers: table.attempt([changes[n] for n in numbers]))
    return table.rows, set(refused)


def test_two_that_cannot_both_be_there() -> None:
    assert written({}, [(1, "a"), (2, "a"), (3, "b")], {}) == ({1: "a", 3: "b"}, {1})


def test_names_that_wander() -> None:
    """Each row takes the name of the next one, which comes later; and the last two swap theirs."""
    before = {1: "a", 2: "b", 3: "c", 4: "d"}
    changes = [(1, None), (1, "b"), (2, None), (2, "c"), (3, None), (3, "d"), (4, None), (4, "e")]
    assert written(before, changes, {1: 0, 3: 2, 5: 4, 7: 6}) == ({1: "b", 2: "c", 3: "d", 4: "e"}, set())
    assert written({1: "a", 2: "b"}, [(1, None), (1, "b"), (2, None), (2, "a")], {1: 0, 3: 2}) == (
        {1: "b", 2: "a"},
        set(),
    )


def test_the_version_before_a_bad_one_goes() -> None:
    before = {1: "a", 2: "b"}
    assert written(before, [(1, None), (1, BAD), (2, None), (2, "a")], {1: 0, 3: 2}) == ({2: "a"}, {1})


def test_only_what_does_not_fit_is_refused(rng: random.Random, rounds: Callable[[int, int], int]) -> None:
    for _ in range(rounds(200, 5000)):
        names = [*"abcdef", BAD]
        before = dict(zip(rng.sample(range(6), 4), rng.sample(names[:-1], 4), strict=True))
        changes: list[Change] = []
        replaced: dict[int, int] = {}
        for key in rng.sample(range(6), rng.randint(1, 6)):
            if key in before:
                changes.append((key, None))
            if key not in before or rng.random() < 0.7:
                changes.append((key, rng.choice(names)))
                if key in before:
                    replaced[len(changes) - 1] = len(changes) - 2
        after, refused = written(before, changes, replaced)
        touched = {key for key, _ in changes}
        assert {key: name for key, name in before.items() if key not in touched}.items() <= after.items()
        for number, (key, name) in enumerate(changes):
            if name is None:
                continue
            if number in refused:
                assert key not in after
                assert Table(after).attempt([(key, name)]) is not None
            else:
                assert after[key] == name
