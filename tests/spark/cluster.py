"""A standalone Spark cluster of processes on the loopback, whose workers have nothing of ours.

Each worker has a folder of its own, no PYTHONPATH, and a Python environment with what Spark and our
functions import, but without our packages. Ports are those that the processes find free.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from spark.session import find_java_home

START_LIMIT_S = 120
STOP_LIMIT_S = 30
LIBRARIES = ("numpy", "numpy.libs", "pandas", "pyarrow", "pyarrow.libs", "dateutil", "six.py",
             "pytz", "tzdata")  # fmt: skip


def make_python(folder: Path, without: str = "") -> Path:
    """Make an environment that has the libraries and not our packages; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    here = site_packages()
    for name in LIBRARIES:
        if name != without and (here / name).exists():
            (packages / name).symlink_to(here / name)
    return folder / "bin" / "python"


def site_packages() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent.parent


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """Start a master and workers, and yield the master's URL when all are there."""
    folder.mkdir()
    home = folder / "spark"
    home.symlink_to(site_packages() / "pyspark")
    with ExitStack() as stack:
        master = "org.apache.spark.deploy.master.Master"
        log = stack.enter_context(_process(folder / "master", home, [master, *_places()]))
        url = _wait_for(log, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            place = folder / f"worker-{number}"
            words = ["org.apache.spark.deploy.worker.Worker", *_places()]
            words += ["--cores", "1", "--memory", "700m", "--work-dir", str(place / "work"), url]
            stack.enter_context(_process(place, home, words))
        for number in range(workers):
            _wait_for(folder / f"worker-{number}" / "log", "(Successfully registered with master)")
        yield url


def _places() -> list[str]:
    return ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]


@contextmanager
def _process(place: Path, home: Path, words: list[str]) -> Iterator[Path]:
    """Run a class of Spark's with ``place`` as its folder; yield its log."""
    place.mkdir()
    (place / "log4j2.properties").write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.a.ref = a\n"
        "appender.a.type = Console\nappender.a.name = a\nappender.a.target = SYSTEM_ERR\n"
        "appender.a.layout.type = PatternLayout\nappender.a.layout.pattern = %p %c{1}: %m%n%ex\n"
    )
    options = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile="
    log = place / "log"
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(place),
        "JAVA_HOME": find_java_home(),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{options}{place / 'log4j2.properties'}",
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(place / "work"),
        "LANG": "C.UTF-8",
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["bash", home / "bin" / "spark-class", *words],
            cwd=place,
            env=environment,
            stdout=out,
            stderr=out,
        )
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"{log} has no {pattern!r}:\n{log.read_text(errors='replace')[-3000:]}")


def check(
    run: Path | str, master: str, python: Path, *more: str
) -> subprocess.CompletedProcess[str]:
    """Run ``ledgermq check`` as a process; workers' Python is ``python``."""
    words = [sys.executable, "-m", "cli", "check", str(run), "--master", master, "--json", *more]
    if not master.startswith("local"):
        words += ["--conf", "spark.executor.memory=600m", "--driver-memory", "600m"]
    environment = {**os.environ, "PYSPARK_PYTHON": str(python)}
    environment.pop("SPARK_MASTER", None)
    return subprocess.run(
        words, capture_output=True, text=True, check=False, env=environment, timeout=600
    )
