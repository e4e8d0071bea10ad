"""Starting and stopping jobs: what was asked last happens, however long the batch in hand takes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from velostream.engine.inputs.widening import ColumnsWidenedError
from velostream.model.jobs import JobState
from velostream.runtime.jobs import job as module
from velostream.runtime.jobs.job import Job

if TYPE_CHECKING:
    from pathlib import Path


class Endless:
    """Work that always has one more step to do."""

    poll_seconds = 0.01
    trigger_seconds = 0.0

    def offsets(self) -> None:
        return None

    def latest(self, _: object) -> dict[str, Any]:
        return {"source": {"position": 1}}

    def health(self) -> tuple[str, None]:
        return "healthy", None

    def state(self) -> tuple[()]:
        return ()

    def lags(self) -> dict[str, int]:
        return {}

    def settled(self) -> bool:
        return True

    def listen(self, _: object) -> None:
        pass

    def close(self) -> None:
        pass


class SlowSteps:
    """Steps that take until the gate is open."""

    gate: threading.Event
    entered: threading.Event

    def __init__(self, *_: object) -> None:
        pass

    def start(self, _: object) -> None:
        pass

    def advance_to(self, *_: object) -> None:
        self.entered.set()
        self.gate.wait()

    def stop(self) -> None:
        pass


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> type[SlowSteps]:
    class Slow(SlowSteps):
        gate = threading.Event()
        entered = threading.Event()

    monkeypatch.setattr(module, "StepLoop", Slow)
    return Slow


def job_of(folder: Path, opened: list[int]) -> Job:
    def open_work(_: Job) -> Any:
        opened.append(1)
        return Endless()

    return Job("1", "orders", "table", "", folder, lambda: None, open_work)  # type: ignore[arg-type, return-value]


def test_a_pause_that_gave_up_waiting_comes_when_the_batch_is_done(tmp_path, slow):
    job = job_of(tmp_path, [])
    job.start()
    assert slow.entered.wait(10)
    job.stop(JobState.PAUSED, timeout=0.01)
    assert job.state is JobState.RUNNING
    assert job.ending
    slow.gate.set()
    assert job.wait(lambda j: j.state is JobState.PAUSED and not j.ending, 10)


def test_a_resume_after_a_pause_that_gave_up_waiting_is_not_lost(tmp_path, slow):
    opened: list[int] = []
    job = job_of(tmp_path, opened)
    job.start()
    assert slow.entered.wait(10)
    job.stop(JobState.PAUSED, timeout=0.01)
    job.start()
    slow.gate.set()
    assert job.wait(lambda j: len(opened) == 2 and j.state is JobState.RUNNING, 10)
    job.stop()
    assert job.state is JobState.STOPPED
    assert not job.ending


def test_columns_that_widen_to_the_same_again_fail_the_job(tmp_path):
    opened: list[int] = []

    def open_work(_: Job) -> Any:
        opened.append(1)
        raise ColumnsWidenedError("file x has wider columns now", detail="source: a double")

    job = Job("1", "orders", "table", "", tmp_path, lambda: None, open_work)  # type: ignore[arg-type, return-value]
    job.start()
    assert job.wait(lambda j: j.state is JobState.FAILED, 10)
    assert len(opened) == 2
    assert "did not take in" in str(job.info.reason)


def test_a_start_at_the_moment_a_job_has_finished_is_not_lost(tmp_path, slow):
    class Nothing(Endless):
        def latest(self, _: object) -> None:  # type: ignore[override]
            return None

    opened: list[int] = []

    def open_work(_: Job) -> Any:
        opened.append(1)
        return Nothing()

    def start_again(job: Job) -> None:
        if job.state is JobState.FINISHED and len(opened) == 1:
            job.start()

    job = Job("1", "orders", "table", "", tmp_path, lambda: None, open_work, once=True, on_change=start_again)  # type: ignore[arg-type, return-value]
    job.start()
    assert job.wait(lambda j: len(opened) == 2 and j.state is JobState.FINISHED, 10)
