"""``ledgermq demo --cluster``: RocketMQ's sample clusters as containers, walked through once.

It starts the compose file of the name, sends messages to all masters, kills one of them, shows what
can be read and sent while it is down, starts it again, and ends with whether a new group of
consumers gets every message that was acknowledged. Needs the image and an engine.

Exit codes: 0 all was read, 1 something acknowledged is missing, 254 usage, 255 harness failure.
Source: docker/samples; docs/replication.md (RocketMQ's sample settings).
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from chaos.backends import engine
from chaos.backends.base import ClusterFailed
from chaos.catalogue.console import PlainConsole
from chaos.checker.compose import EXIT_HARNESS
from chaos.nemesis.wait import until
from chaos.net.wire import RAFT_STATUS, StatusConnection
from ledgermq.client import (
    ClientConfig,
    ClientError,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    RemotingError,
)
from ledgermq.runtime.cancel import timeout

DIRECTORY: Final = Path(__file__).resolve().parents[1] / "docker" / "samples"
NET: Final = "172.28.79"
PROJECT: Final = "ledgermq-sample"
PORT: Final = 10911
TOPIC: Final = "Orders"
COUNT: Final = 200
READY_S: Final = 120.0
READ_S: Final = 30.0
ASK_S: Final = 2.0
CONFIG: Final = "/var/lib/ledgermq/broker.conf"
"""What a broker's container has its settings in, the key among them."""
EXIT_LOST: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample cluster: which of its services are brokers, with their last number of address."""

    brokers: dict[str, int]
    name_servers: int = 2
    slaves: int = 0
    """How many slaves each master has that must follow before anything is sent."""
    is_controlled: bool = False
    """Whether controllers say who is master."""

    @property
    def name_server_addrs(self) -> tuple[str, ...]:
        """Where its name servers are."""
        return tuple(f"{NET}.{2 + at}:9876" for at in range(self.name_servers))


_PAIRS: Final = {"broker-a": 10, "broker-a-s": 11, "broker-b": 20, "broker-b-s": 21}
SAMPLES: Final = {
    "2m-2s-async": Sample(brokers=_PAIRS, slaves=1),
    "2m-2s-sync": Sample(brokers=_PAIRS, slaves=1),
    "2m-noslave": Sample(brokers={"broker-a": 10, "broker-b": 20}),
    "controller": Sample(
        brokers={f"broker-a-{at}": 10 + at for at in range(3)},
        name_servers=3,
        slaves=2,
        is_controlled=True,
    ),
}
"""By the names of the compose files."""


@dataclass(slots=True)
class Walk:
    """One walk through a cluster that runs."""

    name: str
    console: Console
    sent: set[bytes] = field(default_factory=set)
    """Bodies that were acknowledged with SEND_OK."""

    @property
    def sample(self) -> Sample:
        """What the cluster consists of."""
        return SAMPLES[self.name]

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(Text(text), soft_wrap=True)

    async def compose(self, *arguments: str) -> str:
        """Run compose. Errors: `ClusterFailed`."""
        file = DIRECTORY / f"{self.name}.yaml"
        command = [*engine.compose_command(), "-p", PROJECT, "-f", str(file), *arguments]
        environment = {**os.environ, "LEDGERMQ_NET": NET}
        return await engine.call(command, environment=environment, timeout_s=READY_S)

    async def masters(self) -> list[str]:
        """Return which brokers are masters that have all their slaves."""
        found = []
        for name, number in self.sample.brokers.items():
            connection = StatusConnection(f"{NET}.{number}", PORT)
            try:
                status = await connection.ask(RAFT_STATUS, ASK_S)
            except (OSError, TimeoutError, EOFError, ValueError):
                continue
            finally:
                connection.close()
            following = status.get("slaves")
            count = len(following) if isinstance(following, list) else 0
            if "MASTER" in str(status.get("mode")) and count >= self.sample.slaves:
                found.append(name)
        return found

    async def await_masters(self) -> list[str]:
        """Return the masters, once there are all. Errors: `ClusterFailed`."""
        wanted = 1 if self.sample.is_controlled else 2

        async def there() -> bool:
            return len(await self.masters()) == wanted

        await self._must(there, f"{wanted} masters with their slaves", READY_S)
        return await self.masters()

    async def send(self, producer: Producer, mark: str) -> int:
        """Send messages; return how many were acknowledged with SEND_OK."""
        before = len(self.sent)
        for number in range(COUNT):
            body = f"{mark}-{number}".encode()
            try:
                result = await producer.send(Message(TOPIC, body))
            except (RemotingError, ClientError):
                continue
            if result.status.name == "SEND_OK":
                self.sent.add(body)
        return len(self.sent) - before

    async def read(self, group: str, within_s: float) -> set[bytes]:
        """Return the acknowledged bodies that a new group of consumers gets in time."""
        found: set[bytes] = set()

        def listen(messages: list[MessageExt], _context: ConsumeContext) -> ConsumeStatus:
            found.update(message.body for message in messages)
            return ConsumeStatus.CONSUME_SUCCESS

        options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
        consumer = PushConsumer(self._config(group), listen, options)
        consumer.subscribe(TOPIC)
        await consumer.start()

        async def all_there() -> bool:
            return found >= self.sent

        try:
            await until(all_there, within_s)
        finally:
            await consumer.stop()
        return found & self.sent

    async def go(self) -> int:
        """Walk through a cluster that was started; return the exit code."""
        masters = await self.await_masters()
        self.say(f"masters: {', '.join(masters)}")
        async with Producer(self._config("samples")) as producer:
            await self._create_topic(masters[0], producer)
            self.say(f"sent {COUNT}, {await self.send(producer, 'before')} of them SEND_OK")
            victim = masters[0]
            await self.compose("kill", "-s", "KILL", victim)
            self.say(f"killed {victim}")
            if self.sample.is_controlled:
                await self._another(victim)
            self.say(f"sent {COUNT}, {await self.send(producer, 'meanwhile')} of them SEND_OK")
            found = await self.read("meanwhile", READ_S / 2 if not self.sample.slaves else READ_S)
            self.say(f"a new group read {len(found)} of {len(self.sent)} meanwhile")
            await self.compose("start", victim)
            await self.await_masters()
            self.say(f"{victim} is back, masters: {', '.join(await self.masters())}")
        found = await self.read("afterwards", READ_S)
        missing = len(self.sent - found)
        self.say(f"a new group read {len(found)} of {len(self.sent)} that were acknowledged")
        self.say(f"Verdict: {'INVALID' if missing else 'VALID'}, {missing} missing")
        return EXIT_LOST if missing else 0

    async def _create_topic(self, inside: str, producer: Producer) -> None:
        """Create the topic on all masters, by an administrator who has the key."""
        servers = ";".join(self.sample.name_server_addrs)
        words = ["ledgermq", "admin", "-c", CONFIG, "updateTopic", "-n", servers, "-t", TOPIC]
        await self.compose("exec", "-T", inside, *words, "-c", "DefaultCluster")
        names = 1 if self.sample.is_controlled else len(await self.masters())

        async def known() -> bool:
            try:
                queues = await producer.fetch_publish_queues(TOPIC)
            except (RemotingError, ClientError):
                return False
            return len({queue.broker_name for queue in queues}) == names

        await self._must(known, "the route of the topic", READ_S)

    async def _another(self, victim: str) -> None:
        async def elected() -> bool:
            for name, number in self.sample.brokers.items():
                connection = StatusConnection(f"{NET}.{number}", PORT)
                try:
                    status = {} if name == victim else await connection.ask(RAFT_STATUS, ASK_S)
                except (OSError, TimeoutError, EOFError, ValueError):
                    status = {}
                finally:
                    connection.close()
                if status.get("mode") == "CONTROLLED_MASTER":
                    self.say(f"{name} is master of epoch {status.get('epoch')}")
                    return True
            return False

        await self._must(elected, "another master", READY_S)

    def _config(self, group: str) -> ClientConfig:
        return ClientConfig(
            namesrv_addrs=self.sample.name_server_addrs, group=group, route_poll_ms=1_000
        )

    async def _must(self, holds: Callable[[], Awaitable[bool]], what: str, within_s: float) -> None:
        if not await until(holds, within_s):
            logs = await self.compose("logs", "--tail", "4")
            raise ClusterFailed(f"{what}: not within {within_s:.0f} s\n{logs}")


async def walk(name: str, console: Console) -> int:
    """Start a sample cluster, walk through it, and remove it; return the exit code."""
    made = Walk(name, console)
    await made.compose("down", "--volumes", "--remove-orphans")
    try:
        await made.compose("up", "--detach", "--no-build")
        made.say(f"cluster {name}: {', '.join(made.sample.brokers)}")
        return await made.go()
    finally:
        async with timeout(READY_S):
            await made.compose("down", "--volumes", "--remove-orphans")


def main(name: str) -> int:
    """Walk through a sample cluster; return the exit code."""
    console = PlainConsole()
    try:
        return asyncio.run(walk(name, console))
    except (ClusterFailed, OSError) as error:
        console.print(Text(f"the demo failed: {error}", style="bold red"), soft_wrap=True)
        return EXIT_HARNESS
    except KeyboardInterrupt:
        return 130
