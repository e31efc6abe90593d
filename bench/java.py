"""The published Java client and the real RocketMQ servers, for interop tests and comparison.

Gets the jars by Maven (names only, see tests/interop/java/pom.xml), compiles the driver with
javac, and starts real name servers and brokers on loopback. Knows nothing of our own broker. Where
Maven, a JDK or the artifacts cannot be had, ``prepare`` raises ``JavaUnavailableError`` with the
reason.
"""

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import ServerProcesses, wait_for_port
from chaos.backends.ports import take_port_block

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCES = REPOSITORY / "tests" / "interop" / "java"
VERSION = "4.9.7"  # of the clients and servers that we compare with
MAVEN_TIMEOUT_S = 600
LOGBACK = """<configuration><appender name="F" class="ch.qos.logback.core.FileAppender">
<file>{path}</file><encoder><pattern>%d %p %m%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="F"/></root></configuration>
"""


class JavaUnavailableError(Exception):
    """The Java side cannot be set up here; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaTools:
    """A compiled driver and the class path of the published artifacts."""

    java: str
    class_path: str

    def command(self, main: str, args: Sequence[str] = (), heap_mb: int = 512) -> list[str]:
        """Return the argument vector that runs ``main``; compressed GC threads fit two cores."""
        return [
            self.java, f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", "-XX:+UseG1GC",
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
            "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
            "-Drocketmq.client.logRoot=" + str(REPOSITORY / "build" / "java" / "logs"),
            "-cp", self.class_path, main, *args,
        ]  # fmt: skip


def prepare(version: str = VERSION) -> JavaTools:
    """Fetch the jars of a RocketMQ version and compile the driver once; later calls reuse build/.

    Raises:
        JavaUnavailableError: no JDK, no Maven, or Maven could not get the artifacts.
        RuntimeError: the driver does not compile.
    """
    java, javac = shutil.which("java"), shutil.which("javac")
    if java is None or javac is None:
        raise JavaUnavailableError("no JDK (java and javac) on the path")
    build = REPOSITORY / "build" / ("java" if version == VERSION else f"java-{version}")
    jars = build / "lib"
    if not (jars / ".complete").exists():
        _copy_dependencies(jars, version)
    classes = build / "classes"
    _compile(javac, jars, classes)
    return JavaTools(java=java, class_path=f"{classes}:{jars}/*")


def _compile(javac: str, jars: Path, classes: Path) -> None:
    """Compile the driver, unless its sources are those of the classes that are there."""
    sources = sorted(SOURCES.glob("src/ledgermq/*.java"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    stamp = classes / ".sources"
    if stamp.exists() and stamp.read_text(encoding="ascii") == digest:
        return
    classes.mkdir(parents=True, exist_ok=True)
    compiled = subprocess.run(
        [javac, "-d", str(classes), "-cp", f"{jars}/*", *map(str, sources)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if compiled.returncode != 0:
        raise RuntimeError(f"the driver does not compile: {compiled.stderr.strip()[:2000]}")
    stamp.write_text(digest, encoding="ascii")


def _copy_dependencies(jars: Path, version: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JavaUnavailableError("no Maven (mvn) on the path")
    jars.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            [maven, "-q", "-B", "-f", str(SOURCES / "pom.xml"), "dependency:copy-dependencies",
             f"-Drocketmq.version={version}", f"-DoutputDirectory={jars}"],
            capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise JavaUnavailableError(f"Maven did not finish within {MAVEN_TIMEOUT_S} s") from error
    if done.returncode != 0:
        reason = (done.stdout + done.stderr).strip().splitlines()
        raise JavaUnavailableError("Maven failed: " + (reason[0] if reason else "no output"))
    (jars / ".complete").touch()


def settle(seconds: float) -> None:
    """Wait for the real group's first election and registration, which it does not report."""
    time.sleep(seconds)


class RealRocketMQ(ServerProcesses):
    """Real RocketMQ: one name server and one DLedger group (or one plain broker)."""

    def __init__(
        self,
        tools: JavaTools,
        home: Path,
        *,
        replicas: int,
        sync_flush: bool,
        settings: Sequence[str] = (),
        heap_mb: int = 1024,
    ) -> None:
        """See `ServerProcesses`; one replica means a plain broker without DLedger.

        ``settings`` are more lines for each broker's configuration.
        """
        super().__init__(home, replicas=replicas, sync_flush=sync_flush)
        self._tools = tools
        self._settings = settings
        self._heap_mb = heap_mb

    def _start(self) -> None:
        conf = self._home / "conf"
        conf.mkdir(parents=True)
        for name in ("namesrv", "broker"):
            log = LOGBACK.format(path=self._home / f"{name}.log")
            (conf / f"logback_{name}.xml").write_text(log, encoding="utf-8")
        base = take_port_block(2 + self._replicas * 21)
        self.namesrv_addr = f"127.0.0.1:{base}"
        namesrv_conf = conf / "namesrv.conf"
        namesrv_conf.write_text(f"listenPort={base}\n", encoding="utf-8")
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        self._name_servers.append(self._spawn(main, namesrv_conf, "namesrv", 128))
        wait_for_port(base, self._name_servers[0])
        for node in range(self._replicas):
            broker_conf = conf / f"n{node}.conf"
            broker_conf.write_text(self._broker_conf(node, base), encoding="utf-8")
            main = "org.apache.rocketmq.broker.BrokerStartup"
            self.brokers.append(self._spawn(main, broker_conf, f"n{node}", self._heap_mb))
        for node, broker in enumerate(self.brokers):
            wait_for_port(_listen_port(base, node), broker)

    def _broker_conf(self, node: int, base: int) -> str:
        lines = [
            "brokerClusterName=PeerCluster",
            "brokerName=RaftNode00",
            f"listenPort={_listen_port(base, node)}",
            f"namesrvAddr={self.namesrv_addr}",
            "brokerIP1=127.0.0.1",
            "brokerIP2=127.0.0.1",
            f"storePathRootDir={self._home / f'store-n{node}'}",
            f"storePathCommitLog={self._home / f'store-n{node}' / 'commitlog'}",
            f"flushDiskType={self._flush}",
            "autoCreateTopicEnable=true",
            "mappedFileSizeCommitLog=1073741824",
            *self._settings,
            *self._mode_lines(node, base),
        ]
        return "\n".join(lines) + "\n"

    def _mode_lines(self, node: int, base: int) -> list[str]:
        """Return the lines that say how the brokers replicate."""
        if self._replicas == 1:
            return []
        peers = ";".join(
            f"n{i}-127.0.0.1:{_listen_port(base, i) + 10}" for i in range(self._replicas)
        )
        return [
            "enableDLegerCommitLog=true", "dLegerGroup=RaftNode00", f"dLegerPeers={peers}",
            f"dLegerSelfId=n{node}", "sendMessageThreadPoolNums=16",
        ]  # fmt: skip

    def _spawn(self, main: str, conf: Path, name: str, heap_mb: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "ROCKETMQ_HOME": str(self._home)}
        with (self._home / f"{name}.out").open("wb") as out:
            command = self._tools.command(main, ["-c", str(conf)], heap_mb)
            command.insert(1, f"-Duser.home={self._home}")
            return subprocess.Popen(command, env=environment, stdout=out, stderr=out)


class RealPair(RealRocketMQ):
    """A real SYNC_MASTER and its real slave; the slave finds the master by the name server."""

    def _mode_lines(self, node: int, base: int) -> list[str]:
        del base
        role = "SLAVE" if node else "SYNC_MASTER"
        return [f"brokerId={node}", f"brokerRole={role}"]


def _listen_port(base: int, node: int) -> int:
    # listenPort - 2 is the VIP listener, + 1 the HA service, + 10 the DLedger peer port.
    return base + 4 + node * 20
