"""Every port of a process in which Velostream alone runs, tried by somebody else on this machine.

Run by `test_open_ports.py` in a process of its own: servers that other tests have started listen, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

INTRUDER = Path(__file__).with_name("intruder.py")
LISTENING = "0A"
LOOPBACK = {"tcp": "0100007F", "tcp6": "0000000000000000FFFF00000100007F"}
RPC_REQUEST, ONE_WAY, CHUNK, FILE = 3, 9, 0, 6
"""Messages of Spark's transport, and what it answers when something fails."""
RPC_FAILURE, CHUNK_FAILURE, FILE_FAILURE = 5, 2, 8


def family(pid: int) -> set[int]:
    """A process and those that it started, at one moment: some end while one looks at them."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name in parentheses may hold spaces; the state and the parent follow it.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found, waiting = set(), [pid]
    while waiting:
        found.add(one := waiting.pop())
        waiting.extend(children.get(one, ()))
    return found


def sockets(pid: int) -> Iterator[str]:
    """The inodes of a process's sockets; none of a process that has ended."""
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    yield target[8:-1]


def listening() -> list[int]:
    """TCP ports on which this process and its children listen; fails for one that is open to the network."""
    inodes = {inode for pid in family(os.getpid()) for inode in sockets(pid)}
    ports = []
    for table, loopback in LOOPBACK.items():
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENING and words[9] in inodes:
                address, port = words[1].split(":")
                assert address == loopback, f"port {int(port, 16)} is open to the network"
                ports.append(int(port, 16))
    return ports


def frame(kind: int, content: bytes) -> bytes:
    return struct.pack(">qb", len(content) + 9, kind) + content


def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


def request(body: bytes) -> bytes:
    return frame(RPC_REQUEST, struct.pack(">qi", 7, len(body)) + body)


def first_call(spark: SparkSession, port: int) -> bytes:
    """What a client of Spark sends first, as Java writes it: does the driver have this endpoint?"""
    context = spark.sparkContext
    jvm: Any = context._jvm
    kind = jvm.java.lang.Class.forName("org.apache.spark.rpc.netty.RpcEndpointVerifier$CheckExistence")
    name = context._gateway.new_array(jvm.java.lang.Object, 1)
    name[0] = "HeartbeatReceiver"
    out = jvm.java.io.ByteArrayOutputStream()
    stream = jvm.java.io.ObjectOutputStream(out)
    stream.writeObject(kind.getDeclaredConstructors()[0].newInstance(name))
    stream.close()
    endpoint = b"endpoint-verifier"
    receiver = struct.pack(">?h", True, 9) + b"127.0.0.1" + struct.pack(">i", port)
    return b"\0" + receiver + struct.pack(">h", len(endpoint)) + endpoint + bytes(out.toByteArray())


def attempts(spark: SparkSession, port: int) -> dict[str, bytes]:
    application = text(spark.sparkContext.applicationId)
    blocks = b"\0" + application + text("driver") + struct.pack(">i", 1) + text("broadcast_0_piece0")
    system = b"c\nz:java.lang.System\ngetProperty\nsuser.dir\ne\n"
    return {
        "spark call": request(first_call(spark, port)),
        "spark call, one way": frame(ONE_WAY, text("ApplicationEnd")),
        "spark blocks": request(blocks),
        "spark chunk": frame(CHUNK, struct.pack(">qi", 0, 0)),
        "spark file": frame(FILE, text("/files/canary.txt")),
        "callback": b"c\np0\ntoString\ne\n",
        "callback, collected": b"g\np0\ne\n",
        "callback, wrong token": b"A\nguess\ne\nc\np0\ntoString\ne\n",
        "gateway": system,
        "gateway, wrong token": b"A\nguess\ne\n" + system,
        "python worker": text("guess") + struct.pack(">i", 0),
        "accumulator": b"guess" * 20 + struct.pack(">i", 1) + b"\0" * 20,
        "http": b"GET / HTTP/1.0\r\n\r\n",
        "silence": b"",
    }


def refused(answer: bytes) -> bool:
    """Whether an answer is none, or says no and nothing else."""
    if not answer:
        return True
    if answer.startswith(b"!"):  # py4j
        says_no = (b"!xn\n", b"!xsAuthentication error", b"!zspy4j.Py4JException: Unknown command received")
        return answer.startswith(says_no)
    if len(answer) < 12:  # a Python worker: its process id, then its answer
        return answer[4:] in (b"", text("err"))
    if answer[8] == RPC_FAILURE:
        return b"Expected SaslMessage" in answer
    return answer[8] in (CHUNK_FAILURE, FILE_FAILURE)


def test_other_users_get_nothing_from_any_port(opened, spark, tmp_path: Path, wait_until, capfd):
    orders = tmp_path / "orders.csv"
    orders.write_text("id,amount\n1,2\n1,3\n")
    database = opened(tmp_path / "data")
    database.sql(f"CREATE TABLE totals AS SELECT id, SUM(amount) AS s FROM file://{orders} GROUP BY id")

    @database.udf(returns="bigint")
    def next_number(value: int) -> int:
        return value + 1

    assert database.sql("SELECT next_number(s) AS n FROM totals").rows() == [(6,)]
    ports = listening()
    assert len(ports) >= 6, "driver, block manager, gateway, callbacks, accumulators, Python workers"
    tried = [(port, name, message) for port in ports for name, message in attempts(spark, port).items()]
    with subprocess.Popen(
        [sys.executable, INTRUDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as intruder:
        assert intruder.stdin
        assert intruder.stdout
        intruder.stdin.write(json.dumps([(port, message.hex()) for port, _, message in tried]) + "\n")
        intruder.stdin.flush()
        answers = [bytes.fromhex(answer) for answer in json.loads(intruder.stdout.readline())]
        # While somebody holds on to every port, everything goes on.
        orders.write_text("id,amount\n1,2\n1,3\n1,4\n")
        wait_until(lambda: database.sql("SELECT next_number(s) AS n FROM totals").rows() == [(10,)])
        intruder.stdin.close()
    found = {(port, name): answer for (port, name, _), answer in zip(tried, answers, strict=True)}
    assert not {where: answer for where, answer in found.items() if not refused(answer)}
    assert any(b"Expected SaslMessage" in answer for answer in found.values())
    assert "Traceback" not in capfd.readouterr().err, "nor can they write to our screen"
