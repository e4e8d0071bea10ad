"""The broker itself: what it keeps when it is stopped or killed, and what is told when it cannot start."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from typing import TYPE_CHECKING

import kafka_clients as clients
import pytest

from refusals import refusal
from velostream.devtools.broker.folder import port_of, running, stop, wipe
from velostream.devtools.broker.process import BrokerProcess, free_port
from velostream.errors import JavaError
from velostream.spark.jars.class_path import load_jars

if TYPE_CHECKING:
    from pathlib import Path

    from kafka_clients import Consume, Produce, Topics
    from pyspark.sql import SparkSession
    from tests.conftest import WaitUntil

pytestmark = pytest.mark.sampled(3)

TRADES = [{"symbol": "AAPL", "price": 150.25}, {"symbol": "MSFT", "price": 99.5}]


def velo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "velostream", "broker", *arguments, "--data-dir", str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_records_come_back_as_they_were_written(topic: Topics, produce: Produce, consume: Consume) -> None:
    name = topic(2)
    produce(
        name,
        [
            clients.Sent({"n": 1}, "a", partition=0, headers={"h": "x", "none": None}, timestamp=1_000),
            clients.Sent(b"\xff", None, partition=1),
            clients.Sent(None, "a", partition=0),
        ],
    )
    first, tombstone, raw = consume(name)
    assert (first.key, first.json, first.timestamp, first.offset) == (b"a", {"n": 1}, 1_000, 0)
    assert first.headers == (("h", b"x"), ("none", None))
    assert (tombstone.partition, tombstone.key, tombstone.value) == (0, b"a", None)
    assert (raw.partition, raw.key, raw.value) == (1, None, b"\xff")


def test_topics_are_not_made_by_asking_for_them(broker: BrokerProcess, topic: Topics) -> None:
    name = topic(0)
    with pytest.raises(AssertionError, match="UNKNOWN_TOPIC"):
        clients.produce(broker.address, name, ["x"], {"topic.metadata.propagation.max.ms": 500})


@pytest.mark.spark
def test_spark_reads_a_topic(
    broker: BrokerProcess, topic: Topics, produce: Produce, spark: SparkSession
) -> None:
    name = topic(2)
    produce(name, [(trade["symbol"], trade) for trade in TRADES])
    for _ in range(2):
        load_jars(spark, "kafka")  # twice does no harm
    for session in (spark, spark.newSession()):
        reader = session.read.format("kafka").option("kafka.bootstrap.servers", broker.address)
        rows = reader.option("subscribe", name).load().selectExpr("CAST(value AS STRING) AS v").collect()
        assert sorted((json.loads(row.v) for row in rows), key=lambda trade: trade["symbol"]) == TRADES


def test_what_was_acknowledged_outlives_stop_and_kill(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", free_port())
    broker.start()
    try:
        clients.make_topic(broker.address, "t")
        for number, end in enumerate((broker.stop, broker.kill, broker.kill)):
            clients.produce(broker.address, "t", [number])
            end()
            assert (broker.pid, running(broker.folder)) == (None, None)
            broker.start()
            assert running(broker.folder) == broker.pid
            assert [record.json for record in clients.consume(broker.address, "t")] == list(range(number + 1))
        for path in (broker.folder, *broker.folder.rglob("*")):
            assert path.stat().st_mode & 0o077 == 0, f"others can get at {path}"
    finally:
        broker.kill()


def test_it_ends_when_the_process_that_started_it_is_killed(tmp_path: Path, wait_until: WaitUntil) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from velostream.devtools.broker.process import BrokerProcess, free_port\n"
        "BrokerProcess(Path(sys.argv[1]), free_port()).start(); print('up', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        assert running(tmp_path) is not None
        holder.kill()
    wait_until(lambda: running(tmp_path) is None)


def test_one_broker_per_folder_and_per_port(broker: BrokerProcess, tmp_path: Path) -> None:
    with refusal("config", broker.folder, broker.pid):
        BrokerProcess(broker.folder, free_port()).start()
    with refusal("config", broker.port):
        BrokerProcess(tmp_path / "other", broker.port).start()
    with refusal("config", broker.pid):
        wipe(broker.folder)
    assert not (tmp_path / "other").exists()


def test_a_broker_that_does_not_start_says_why(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", free_port(), settings={"num.io.threads": "many"})
    with pytest.raises(JavaError) as error:
        broker.start()
    assert "num.io.threads" in str(error.value)
    assert broker.pid is None


def test_the_command_starts_in_the_background_tells_stops_and_wipes(tmp_path: Path) -> None:
    port, data_dir = free_port(), tmp_path / "data"
    folder = data_dir / "broker"
    try:
        started = velo(data_dir, "start", "--background", "--port", str(port), "--topic", "orders:3")
        assert started.returncode == 0, started.stderr
        assert f"listens on 127.0.0.1:{port}" in started.stderr
        assert 'made topic "orders" with 3 partitions' in started.stderr
        assert f"kafka://127.0.0.1:{port}/orders" in started.stderr
        clients.produce(f"127.0.0.1:{port}", "orders", ["x"])

        assert [path.stat().st_mode & 0o777 for path in (data_dir, folder)] == [0o700, 0o700]
        told = json.loads(velo(data_dir, "status", "--format", "json").stdout)
        assert told["running"]
        assert (told["address"], told["process"]) == (f"127.0.0.1:{port}", running(folder))
        again = velo(data_dir, "--port", str(port))
        assert (again.returncode, "already runs" in again.stderr) == (2, True)
        refused = velo(data_dir, "wipe")
        assert (refused.returncode, "velo broker stop" in refused.stderr) == (2, True)

        assert velo(data_dir, "stop").returncode == 0
        assert running(folder) is None
        assert velo(data_dir, "status").returncode == 1
        assert port_of(folder) == port
        assert velo(data_dir, "wipe").returncode == 0
        assert not folder.exists()
    finally:
        stop(folder)


def test_the_command_in_the_foreground_stops_with_ctrl_c(tmp_path: Path, wait_until: WaitUntil) -> None:
    folder = tmp_path / "broker"
    command = [sys.executable, "-m", "velostream", "broker", "--port", str(free_port()), "--topic", "a"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_until(lambda: running(folder), 60)
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            assert any("Ctrl-C stops it" in line for line in lines)
            os.kill(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            stop(folder)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert running(folder) is None


def test_ctrl_c_is_heard_though_it_does_not_wake_whoever_waits(
    broker: BrokerProcess, wait_until: WaitUntil
) -> None:
    """As when it comes just before the wait begins: here another thread takes the signal."""
    main, heard = threading.get_ident(), threading.Event()

    def waits() -> bool:
        stack = traceback.walk_stack(sys._current_frames()[main])
        return any(frame.f_code is BrokerProcess.wait.__code__ for frame, _ in stack)

    def interrupt() -> None:
        wait_until(waits, 20)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        if not heard.wait(20) and broker.pid is not None:
            os.kill(broker.pid, signal.SIGTERM)  # or the test would wait for ever

    assert threading.current_thread() is threading.main_thread()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        broker.wait()
    heard.set()
    thread.join()
    assert broker.pid is not None


def test_a_port_that_another_program_has(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ran = velo(tmp_path, "--port", str(port))
    assert ran.returncode == 2
    assert f"port {port} of 127.0.0.1 is taken" in ran.stderr
    assert f"--port {port + 1}" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--topic", "a:0"), '"a:0" is not name:partitions'),
        (("--topic", "a b"), '"a b" is not name:partitions'),
        (("stop", "--port", "9093"), "takes none of"),
        (("halt",), "halt"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    ran = velo(tmp_path, *arguments)
    assert ran.returncode == 2
    assert told in ran.stderr


@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_tells_its_story_with_a_topic(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [sys.executable, "-m", "velostream"]
    ran = subprocess.run(
        [*command, "demo", "--kafka", "--fast", "--data-dir", str(data)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("followed in") == 3
    assert running(tmp_path / "broker") is None

    question = "SELECT SUM(position_size), COUNT(*) FROM user_positions"
    asked = [*command, "sql", "--data-dir", str(data), "--format", "csv", question]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    bought = int(answer.splitlines()[1].split(",")[0])
    broker = BrokerProcess(tmp_path / "broker", free_port())
    broker.start()
    try:
        quantities = [record.json["quantity"] for record in clients.consume(broker.address, "trades-topic")]
    finally:
        broker.kill()
    assert 0 < bought <= sum(quantities)
