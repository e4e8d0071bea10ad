"""Failures of Java as they come through py4j: what is told of them."""

from __future__ import annotations

import pytest

from velostream.errors import StepError
from velostream.spark.failures import translate

pytestmark = pytest.mark.spark


def test_a_program_that_cannot_be_run_is_named(spark):
    java = spark.sparkContext._jvm.java
    with pytest.raises(Exception, match="error=2") as raised:
        java.lang.ProcessBuilder(java.util.List.of("no-such-program")).start()
    error = translate(raised.value)
    assert isinstance(error, StepError)
    assert (
        error.message
        == 'Spark failed: cannot run program "no-such-program": error=2, No such file or directory'
    )


def test_the_innermost_of_a_chain_is_told(spark):
    java = spark.sparkContext._jvm.java
    inner = java.io.IOException("the disk is gone")
    outer = java.lang.RuntimeException("could not write", java.lang.IllegalStateException(inner))
    failed = java.util.concurrent.CompletableFuture.failedFuture(outer)
    with pytest.raises(Exception, match="calling o") as raised:
        failed.get()
    assert translate(raised.value).message == "Spark failed: the disk is gone"
