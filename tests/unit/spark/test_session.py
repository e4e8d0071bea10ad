from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from refusals import refusal
from velostream.spark.gateway import MODULE_OPTIONS, SPARK_HOME, class_path, cluster_command, local_command
from velostream.spark.java import JavaHome, find_java
from velostream.spark.prepare import Prepared
from velostream.spark.session import FIXED, local_cores, session_conf, start_session, stop_session


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[2, 4]", 2), ("spark://h:7077", None), ("yarn", None)],
)
def test_masters(master: str, cores: int | None):
    assert local_cores(master) == cores


def test_what_is_no_master_is_refused():
    with refusal("config", "localhost"):
        local_cores("localhost")


def test_the_user_wins_where_results_do_not_depend_on_it(tmp_path: Path):
    conf = session_conf("local[4]", {"spark.sql.shuffle.partitions": "7"}, tmp_path, Prepared())
    assert conf["spark.sql.shuffle.partitions"] == "7"
    assert conf["spark.ui.enabled"] == "false"
    assert {key: conf[key] for key in FIXED} == FIXED


@pytest.mark.parametrize(
    "key", ["spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.legacy.allowHashOnMapType"]
)
def test_settings_that_exact_results_rest_on_are_refused(key: str, tmp_path: Path):
    with refusal("config", key):
        session_conf("local[2]", {key: "false"}, tmp_path, Prepared())


def test_saying_what_holds_anyway_is_no_error(tmp_path: Path):
    session_conf("local[2]", {"spark.sql.ansi.enabled": "TRUE"}, tmp_path, Prepared())


@pytest.mark.parametrize("master", ["local", "local[2]", "local-cluster[2,1,512]", "yarn", "k8s://https://h"])
def test_sparks_ports_ask_for_a_secret(master: str, tmp_path: Path):
    assert session_conf(master, {}, tmp_path, Prepared())["spark.authenticate"] == "true"


def test_the_secret_of_a_cluster_in_this_process_is_new_each_time_and_on_no_command_line(tmp_path: Path):
    one, other = (session_conf("local-cluster[2,1,512]", {}, tmp_path, Prepared()) for _ in range(2))
    assert one["spark.authenticate.secret"] != other["spark.authenticate.secret"]
    command = " ".join(cluster_command(one))
    assert "spark.authenticate=true" in command
    assert one["spark.authenticate.secret"] not in command


def test_a_standalone_cluster_has_its_own_secret_or_none(tmp_path: Path):
    assert "spark.authenticate" not in session_conf("spark://h:7077", {}, tmp_path, Prepared())
    user = {"spark.authenticate.secret": "s"}
    assert session_conf("spark://h:7077", user, tmp_path, Prepared())["spark.authenticate"] == "true"


def test_what_is_no_setting_of_spark_is_refused(tmp_path: Path):
    with refusal("config", "ui.enabled"):
        session_conf("local[2]", {"ui.enabled": "false"}, tmp_path, Prepared())


def test_java_options_of_the_user_come_after_ours(tmp_path: Path):
    user = {"spark.driver.extraJavaOptions": "-Xss32m"}
    options = session_conf("local[2]", user, tmp_path, Prepared())["spark.driver.extraJavaOptions"]
    assert options.index("-Xss16m") < options.index("-Xss32m")


def test_prepared_parts_are_for_local_masters(tmp_path: Path):
    found = Prepared((tmp_path / "bare.jar",), (tmp_path / "base.jsa", tmp_path / "spark.jsa"))
    conf = session_conf("local[2]", {}, tmp_path, found)
    assert conf["spark.hadoop.fs.file.impl"].endswith("BareLocalFileSystem")
    assert (
        f"-XX:SharedArchiveFile={tmp_path}/base.jsa:{tmp_path}/spark.jsa"
        in conf["spark.driver.extraJavaOptions"]
    )
    assert "spark.hadoop.fs.file.impl" not in session_conf("yarn", {}, tmp_path, found)


def test_a_data_directory_with_a_space_stays_one_argument(tmp_path: Path):
    folder = tmp_path / "my data"
    conf = session_conf("local[2]", {}, folder, Prepared())
    command = local_command(JavaHome(tmp_path, "17", "PATH"), conf, [])
    assert f"-Dvelostream.logs={folder}/logs" in command


def test_the_class_path_is_the_same_every_time():
    entries = class_path([Path("/x.jar")]).split(":")
    assert entries[0] == "/x.jar"
    assert Path(entries[1]).name.startswith("slf4j-api")
    assert entries[2:] == sorted(entries[2:])


@pytest.mark.spark
def test_java_gets_what_sparks_own_launcher_would_give_it():
    launcher = [
        "-cp",
        f"{SPARK_HOME}/jars/*",
        "org.apache.spark.launcher.Main",
        "org.apache.spark.deploy.SparkSubmit",
    ]
    environment = {"SPARK_HOME": str(SPARK_HOME), "SPARK_SCALA_VERSION": "2.13", "PATH": "/usr/bin:/bin"}
    answer = subprocess.run(
        [find_java().java, *launcher, "pyspark-shell"], capture_output=True, env=environment, check=True
    )
    words = answer.stdout.decode().replace("\n", "\0").split("\0")
    options = words[
        words.index("-XX:+IgnoreUnrecognizedVMOptions") : words.index("org.apache.spark.deploy.SparkSubmit")
    ]
    assert set(options) - {"--add-modules=jdk.incubator.vector"} == set(MODULE_OPTIONS)


@pytest.mark.spark
def test_sessions_of_one_process_share_spark_but_not_views(spark, tmp_path: Path):
    other = start_session(None, {}, tmp_path)
    try:
        spark.range(1).createOrReplaceTempView("only_here")
        assert not other.catalog.tableExists("only_here")
        assert other.conf.get("spark.sql.session.timeZone") == "UTC"
    finally:
        stop_session(other)
    assert spark.range(3).count() == 3
    with refusal("java", why="other settings"):
        start_session("local[1]", {}, tmp_path)


SCRIPT = """
import os, signal, sys, threading
from pathlib import Path
from velostream.spark.session import start_session, stop_session

# A shell starts what it puts in the background with SIGINT ignored.
handler = signal.default_int_handler
signal.signal(signal.SIGINT, handler)
spark = start_session(None, {}, Path(sys.argv[1]))
assert signal.getsignal(signal.SIGINT) is handler
for bad in ("SELECT 1/0", "SELECT nothing FROM nowhere"):
    try:
        spark.sql(bad).collect()
        sys.exit("no error")
    except Exception:
        pass
udf = spark.udf.register("shout", lambda text: print("from a worker") or text.upper(), "string")
assert spark.sql("SELECT shout('a')").collect()[0][0] == "A"
threading.Timer(1, lambda: os.killpg(0, signal.SIGINT)).start()
try:
    # Not within a call to Java: py4j now and then loses its connection when it is interrupted there.
    threading.Event().wait(60)
    sys.exit("not interrupted")
except KeyboardInterrupt:
    pass
assert spark.range(3).count() == 3
stop_session(spark)
print("done")
"""


@pytest.mark.spark
def test_nothing_reaches_the_screen_and_ctrl_c_only_reaches_python(tmp_path: Path):
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        start_new_session=True,
    )
    assert (run.stdout, run.stderr, run.returncode) == ("done\n", "", 0)
    assert {path.name for path in tmp_path.iterdir()} == {"data"}
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "data" / "logs" / "spark.log").is_file()


@pytest.mark.spark
def test_java_ends_with_a_python_that_is_killed(tmp_path: Path, wait_until):
    code = (
        "import os, sys; from pathlib import Path\n"
        "from velostream.spark import session\n"
        "session.start_session(None, {}, Path(sys.argv[1]))\n"
        "print(session.java_processes()[0], flush=True); os.kill(os.getpid(), 9)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert run.returncode == -9
    wait_until(lambda: not Path(f"/proc/{run.stdout.strip()}").exists())


@pytest.mark.spark
def test_a_java_that_does_not_start_is_explained(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path; from velostream.spark.session import start_session\n"
        "from velostream.errors import JavaError\n"
        "try: start_session(None, {'spark.driver.extraJavaOptions': '-Xmx1'}, Path(sys.argv[1]))\n"
        "except JavaError as exc: print(exc)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith("Spark does not start\n")
    assert "heap" in run.stdout
    assert run.stderr == ""
