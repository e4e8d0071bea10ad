"""The one cause in what Java, Spark and Python workers say."""

from __future__ import annotations

import re

import pytest

from velostream.spark.messages import plain, root_cause

JARGON = re.compile(
    r"py4j|\bo\d+\.|error occurred while calling|^\s*at [\w.$]+\(|stacktrace|\w+\.\w+\.\w*Exception",
    re.MULTILINE,
)
FRAMES = """
\tat org.apache.spark.rdd.RDD.iterator(RDD.scala:341)
\tat java.base/java.lang.Thread.run(Thread.java:840)
\t... 12 more"""
SPARK = "org.apache.spark.SparkException: "
CALLED = (
    f"An error occurred while calling o320.getResult.\n: {SPARK}Exception thrown in awaitResult: {FRAMES}\n"
)
ABORTED = (
    f"{CALLED}Caused by: {SPARK}Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, "
    "most recent failure: Lost task 0.0 in stage 3.0 (TID 3) (10.0.0.1 executor driver): "
)
DRIVER = f"{FRAMES}\n\nDriver stacktrace:{FRAMES}\n"
CRASHED = f"{SPARK}Python worker exited unexpectedly (crashed){FRAMES}\n"
TRACE = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "udf.py", line 3, in f
ZeroDivisionError: division by zero
SQLSTATE: 38000
"""
HEAP = "java.lang.OutOfMemoryError: Java heap space"
WORKER = "a Python worker of Spark ended while it computed"

SAID = {
    f"{ABORTED}{HEAP}{DRIVER}Caused by: {HEAP}{FRAMES}": "out of memory: java heap space",
    # On a cluster the exception itself may not come along.
    f"{ABORTED}java.io.IOException: No space left on device{DRIVER}": "no space left on device",
    f"{ABORTED}ExecutorLostFailure (executor 1 exited) Reason: Command exited with code 137{DRIVER}": (
        "an executor of Spark was lost: command exited with code 137"
    ),
    f"{SPARK}[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==\nSELECT 1/0{FRAMES}": (
        "division by zero"
    ),
    f"{SPARK}[FAILED_EXECUTE_UDF] Function `f` failed due to: x. SQLSTATE: 39000{FRAMES}\n"
    f"Caused by: java.lang.IllegalStateException: deep down{FRAMES}": "deep down",
    TRACE: "ZeroDivisionError: division by zero",
    # Java repeats the system's error; only the message around it names the program.
    f'An error occurred while calling o135.start.\n: java.io.IOException: Cannot run program "chmod": '
    f"error=2, No such file or directory{FRAMES}\nCaused by: java.io.IOException: error=2, No such file or "
    f"directory{FRAMES}": 'cannot run program "chmod": error=2, No such file or directory',
    f"{CRASHED}Caused by: java.io.EOFException{FRAMES}": WORKER,
    f"{CRASHED}Caused by: java.net.SocketException: Connection reset{FRAMES}": WORKER,
    f"java.nio.file.NoSuchFileException: /data/spool/3{FRAMES}": "file not found: /data/spool/3",
    f"java.lang.NullPointerException{FRAMES}": "null pointer exception",
    f"java.lang.Error: outer{FRAMES}\n\tSuppressed: java.io.IOException: beside{FRAMES}": "outer",
    f"An error occurred while calling o12.f. Trace:\npy4j.Py4JException: Method f([]) is unknown{FRAMES}": (
        "method f([]) is unknown"
    ),
    f"a.b.StreamingQueryException: [STREAM_FAILED] Query [id = 1] terminated: lost SQLSTATE: XXKST{FRAMES}\n"
    f"Caused by: java.lang.RuntimeException: lost{FRAMES}": "lost",
}


@pytest.mark.parametrize("said", SAID, ids=range(len(SAID)))
def test_the_cause_is_told_and_nothing_around_it(said):
    told = root_cause(said)
    assert told == SAID[said]
    assert not JARGON.search(told)


def test_names_of_classes_and_stacks_do_not_come_through():
    assert (
        plain("org.apache.kafka.common.errors.TimeoutException: no answer.\n\tat a.b.C(D.java:1)")
        == "no answer"
    )
    assert plain("see org.apache.spark.SparkException for more.") == "see SparkException for more"
    assert plain("VELOSTREAM_BAD_ROW: a value of column b does not fit") == "a value of column b does not fit"
