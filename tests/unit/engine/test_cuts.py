"""Which versions of several tables belong together."""

from __future__ import annotations

from datetime import UTC, datetime

from velostream.engine.inputs.consistency import bases_of, belong_together, newest_cut
from velostream.model.changes import Commit


def at(version: int, **bases: int) -> dict[str, object]:
    return {"version": version, "bases": bases}


def test_a_commit_contains_its_inputs_and_what_they_contain():
    commit = Commit("j", 1, {"a": at(3, src=7), "__source_1": {"file": 12}}, datetime.now(UTC))
    assert bases_of(commit) == {"a": 3, "src": 7}
    assert bases_of(None) == {}
    assert bases_of(Commit("manual", 1, {}, datetime.now(UTC))) == {}


def test_siblings_belong_together_at_one_version_of_their_source():
    assert belong_together({"a": at(3, src=7), "b": at(9, src=7)})
    assert not belong_together({"a": at(3, src=7), "b": at(9, src=8)})
    assert not belong_together({"a": at(3, src=7), "src": at(8)})
    assert belong_together({"a": at(3, src=7), "b": at(9, other=8)})
    assert belong_together({"s": {"file": 1}, "t": {"file": 2}})


def test_the_newest_positions_that_belong_together_are_taken():
    candidates = {"a": [at(5, src=9), at(4, src=8)], "b": [at(7, src=8), at(6, src=7)]}
    assert newest_cut(candidates) == {"a": at(4, src=8), "b": at(7, src=8)}
    assert newest_cut({"a": [at(5, src=9)], "b": [at(7, src=8)]}) is None


def test_tables_that_a_job_keeps_for_itself_are_no_bases():
    commit = Commit("job", 1, {"__live_1_a": {"version": 7, "bases": {"a": 3}}}, datetime.now(UTC))
    assert bases_of(commit) == {"a": 3}
