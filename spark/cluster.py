"""What a cluster of others needs before it can judge: our code, a like Python, the run in sight.

Workers have Spark and a Python, and nothing of ours. The packages go there as a zip, by Spark's own
file server; then each worker that is there is asked what it has, and what is missing is said in
words before any check is made. Knows no history: files are names and sizes.

Source: docs/checking.md, "On a cluster".
"""

import hashlib
import os
import socket
import sys
import threading
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext

PACKAGES: Final = ("spark", "chaos")
"""What a worker imports of ours: the job, and the data that both checkers share."""
NEEDED: Final = ("numpy", "pandas", "pyarrow")
"""What our functions on workers are written with."""
REMOTE_PYTHON: Final = "python3"
CONNECT_TIMEOUT_S: Final = 10.0
EXECUTOR_WAIT_S: Final = 90.0
"""How long a master may take to give the first executor."""
LOOK_ROUNDS: Final = 20
SEEN_FILES_MAX: Final = 200
"""So many files are looked for by name and size on each worker."""
_LOOPBACK: Final = ("localhost", "127.0.0.1")
_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)


class ClusterError(Exception):
    """The cluster cannot judge this run as it is; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """What one Python process of an executor told of itself. ``python``: as in ``3.11``."""

    host: str
    process: int
    python: str
    executable: str
    spark: str
    lacks: tuple[str, ...]
    unseen: tuple[str, ...]
    read_only: tuple[str, ...]

    @property
    def key(self) -> tuple[str, int]:
        """What tells executors apart: the host, and the process that starts Pythons there."""
        return self.host, self.process


def is_remote(master: str) -> bool:
    """Whether a master's workers are processes of their own, perhaps elsewhere."""
    return not master.startswith("local")


def remote_settings(master: str) -> dict[str, str]:
    """Return Spark's settings that follow from where the master is.

    A master on the loopback has all its workers there, whatever this host's name leads to.
    """
    hosts = [host for host, _ in _addresses(master)]
    if hosts and all(host in _LOOPBACK for host in hosts):
        return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {}


def find_master(master: str) -> None:
    """Connect to a standalone master, or one of several. Errors: ClusterError: nobody listens."""
    addresses = _addresses(master)
    failures = []
    for host, port in addresses:
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            failures.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    if addresses:
        raise ClusterError(f"no master answers at {master} ({'; '.join(failures)})")


def _addresses(master: str) -> list[tuple[str, int]]:
    """Return host and port of each master; none for those that are not standalone ones."""
    scheme, _, rest = master.partition("://")
    if scheme != "spark":
        return []
    parts = [part.rpartition(":") for part in rest.split(",")]
    if any(not host or not port.isdigit() for host, _, port in parts):
        raise ClusterError(f"{master!r} is no master; write spark://HOST:PORT")
    return [(host, int(port)) for host, _, port in parts]


def pack(folder: Path) -> Path:
    """Write our packages as a zip into ``folder`` and return it; the same code, the same file."""
    root = Path(__file__).resolve().parent.parent
    sources = [path for name in PACKAGES for path in sorted((root / name).rglob("*.py"))]
    texts = [(path.relative_to(root).as_posix(), path.read_bytes()) for path in sources]
    digest = hashlib.sha256()
    for name, text in texts:
        digest.update(f"{name}\0{len(text)}\0".encode() + text)
    target = folder / f"ledgermq-{digest.hexdigest()[:16]}.zip"
    if target.exists():
        return target
    partial = folder / f"{target.name}.{os.getpid()}"
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts:
            archive.writestr(zipfile.ZipInfo(name, _ZIP_TIME), text)
    partial.replace(target)  # nobody sees half of it
    return target


def seen_files(folder: Path) -> dict[str, int]:
    """Return some files below ``folder`` with their sizes: by them workers know the folder.

    Spread over all of them, in order of their names, `SEEN_FILES_MAX` at most.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    step = max(1, -(-len(files) // SEEN_FILES_MAX))
    return {str(path): path.stat().st_size for path in files[::step]}


def look_at_workers(
    context: SparkContext, files: dict[str, int], folders: Sequence[Path]
) -> list[Worker]:
    """Ask each executor what it has, and return what they told.

    ``files``: what each must see, with its size; ``folders``: where each must be able to write.
    Errors: ClusterError for the first that lacks something, or if there is none.
    """
    wanted = _wait_for_executors(context)
    here, places = f"{sys.version_info[0]}.{sys.version_info[1]}", [str(path) for path in folders]
    look = _looking(files, places)
    found: dict[tuple[str, int], Worker] = {}
    for _ in range(LOOK_ROUNDS):
        for worker in _ask(context, look, here):
            complain(worker, here, context.version)
            found[worker.key] = worker
        if len(found) >= wanted:
            break
    return [found[key] for key in sorted(found)]


def complain(worker: Worker, python: str, spark: str) -> None:
    """Check what a worker told against the driver's. Errors: ClusterError, with what to do."""
    if worker.python != python:
        raise ClusterError(_other_python(worker.host, worker.python, python))
    if worker.spark.split(".")[:2] != spark.split(".")[:2]:
        raise ClusterError(
            f"the worker on {worker.host} has Spark {worker.spark}, this machine {spark}: install"
            f" pyspark {'.'.join(worker.spark.split('.')[:2])} here, or ask another cluster"
        )
    if worker.lacks:
        raise ClusterError(
            f"the Python of the worker on {worker.host} ({worker.executable}) cannot import"
            f" {'; '.join(worker.lacks)}. Install {', '.join(NEEDED)} there, or name a Python that"
            " has them: PYSPARK_PYTHON=/path/on/workers/bin/python"
        )
    if worker.unseen:
        more = f" (and {len(worker.unseen) - 1} more)" if len(worker.unseen) > 1 else ""
        raise ClusterError(
            f"the worker on {worker.host} does not see {worker.unseen[0]}{more} as this machine"
            " does: put the run into a folder that all of them share under the same path"
        )
    if worker.read_only:
        raise ClusterError(
            f"the worker on {worker.host} cannot write into {worker.read_only[0]}: anomalies are"
            " written by workers; name a shared folder with --out"
        )


def _wait_for_executors(context: SparkContext) -> int:
    """Return how many executors there are, once there is one. Errors: ClusterError."""
    status = context._jsc.sc()
    deadline = time.perf_counter() + EXECUTOR_WAIT_S
    while time.perf_counter() < deadline:
        if status.isStopped():
            raise ClusterError(f"{context.master} refused this application")
        if (number := int(status.getExecutorMemoryStatus().size()) - 1) > 0:  # one is the driver
            return number
        threading.Event().wait(0.2)
    raise ClusterError(
        f"{context.master} gave no executor within {EXECUTOR_WAIT_S:.0f} s: are there workers with"
        " a free core, and the memory that is asked for (--conf spark.executor.memory=512m)?"
    )


def _looking(files: dict[str, int], folders: list[str]) -> Any:  # noqa: ANN401 - a function for Spark
    """Return what is run on a worker. It uses nothing of ours: that may be what is missing."""
    needed, packages = NEEDED, PACKAGES

    def look(_: Iterable[Any]) -> Iterator[dict[str, Any]]:
        import importlib  # noqa: PLC0415 - all of this is run elsewhere
        import os  # noqa: PLC0415 - run elsewhere
        import platform  # noqa: PLC0415 - run elsewhere
        import sys  # noqa: PLC0415 - run elsewhere
        import threading  # noqa: PLC0415 - run elsewhere

        lacks = []
        for name in (*needed, *(f"{package}.history" for package in packages)):
            try:
                importlib.import_module(name)
            except Exception as error:  # noqa: BLE001 - a broken package is missing, too
                lacks.append(f"{name} ({type(error).__name__}: {error})")
        unseen = []
        for path, size in files.items():
            try:
                if os.path.getsize(path) != size:  # noqa: PTH202 - as above
                    unseen.append(path)
            except OSError:
                unseen.append(path)
        import pyspark  # noqa: PLC0415 - run elsewhere

        threading.Event().wait(0.2)  # so that no executor works off the questions to all
        yield {
            "host": platform.node(),
            "process": os.getppid(),
            "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
            "executable": sys.executable,
            "spark": pyspark.__version__,
            "lacks": tuple(lacks),
            "unseen": tuple(unseen),
            "read_only": tuple(path for path in folders if not os.access(path, os.W_OK)),
        }

    return look


def _ask(context: SparkContext, look: Any, here: str) -> list[Worker]:  # noqa: ANN401 - a function for Spark
    """Run ``look`` once a core. Errors: ClusterError for what keeps any Python from starting."""
    number = max(2, context.defaultParallelism)
    try:
        told = context.parallelize(range(number), number).mapPartitions(look).collect()
    except Exception as error:
        text = str(error)
        if "PYTHON_VERSION_MISMATCH" in text or "different version" in text:
            raise ClusterError(_other_python("a worker", _version_in(text), here)) from error
        if "Cannot run program" in text:
            raise ClusterError(
                f"a worker has no Python of the name {context.pythonExec!r}: set PYSPARK_PYTHON to"
                f" the path of Python {here} on workers"
            ) from error
        raise
    return [Worker(**row) for row in told]


def _version_in(text: str) -> str:
    """Return the worker's version in pyspark's complaint."""
    _, _, rest = text.partition("Python in worker has different version ")
    return rest.partition(" ")[0].strip("()").replace(", ", ".") or "another"


def _other_python(where: str, there: str, here: str) -> str:
    return (
        f"the Python of {where} is {there}, this one is {here}: set PYSPARK_PYTHON to the path of"
        f" Python {here} on workers, or run the check with Python {there}"
    )
