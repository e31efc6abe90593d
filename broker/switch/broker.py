"""One broker process whose role controllers say: a `BrokerController` for each role it gets.

The life of it: take an id; register; learn the role, be that, until the controllers say something
else. A change of role closes the broker of the last one, log, store and ports, and opens one of the
next: nothing is shared but the directory. While there is no role there is no broker; a line in the
log, and what answers at the port (`broker.switch.waiting`), say what is waited for.

A master is the master of one epoch, once, and only of one that begins after this process has
registered; whoever has stopped being master registers again, so that there is another election.
Source: docs/adr/0020; ReplicasManager of RocketMQ 5.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING, Final

from broker.access.build import access_file
from broker.cluster.registration_body import signed
from broker.config import Role
from broker.controller import BrokerController
from broker.files import files_of
from broker.modes.assignment import AsMaster, AsSlave
from broker.modes.switched import SwitchedMaster, SwitchedSlave
from broker.ports import check_no_group, check_port_free
from broker.switch.controllers import ASK_MS, DECISION_MS, Controllers, Unanswered, set_body
from broker.switch.in_sync_keeper import InSyncKeeper
from broker.switch.progress import LogProgress
from broker.switch.registration import NotRegistered, Registration
from broker.switch.waiting import WaitingPort
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.signing import CONTROLLER_AUDIENCE
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.disk import FULL
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.tasks import Supervisor
from store.ha.switch.in_sync import InSync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.config import BrokerConfig
    from broker.modes.assignment import Assignment
    from broker.switch.controllers import View
    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.transport.config import TransportConfig
    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Disk
    from ledgermq.runtime.rng import Rng

KEEP_S: Final = 0.1
CREDENTIALS_MS: Final = 5_000
GREET_MS: Final = 2_000
"""With a shorter period a controller hears of each broker in time: it waits for three seconds."""
NO_MASTER: Final = 0
ROOM_S: Final = 5.0
"""So long nobody tries again to begin a role for which the disk had no room."""

_log = logging.getLogger(__name__)


class NoRoom(Exception):  # noqa: N818  # says what is
    """The disk is too full for a role to begin; the message says what could not be written."""


class SwitchingBroker:
    """A broker that is now master, now slave, as controllers say.

    Args:
        config: its settings.
        disk, clock, rng: the machine, or the simulator's.
        transport: limits of the clients' connections.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        transport: TransportConfig | None = None,
    ) -> None:
        self._config = config
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._transport = transport
        self._tasks = Supervisor()
        self._files = files_of(config, clock)
        self._credentials = self._files.credentials
        self._client = RemotingClient(
            handlers={int(RequestCode.NOTIFY_BROKER_ROLE_CHANGED): self._on_notice}
        )
        base = {"clusterName": config.broker_cluster_name, "brokerName": config.broker_name}
        controllers = Controllers(config.controllers, self._client, base, self._sign)
        self._controllers = controllers
        self._registration = Registration(config, disk, rng, controllers)
        self._progress = LogProgress(config, disk)
        self._keeper: InSyncKeeper | None = None
        self._surplus: int | None = None
        """Position from which on the log has to be cut, found by the slave that runs."""
        self._notice = asyncio.Event()
        self._heard_ms = 0
        self._greeted = 0
        """For how many finds of a controller that leads it was greeted."""
        self._ending = asyncio.Lock()
        """Held while a role ends."""
        self._waits_for = ""
        address = config.listen_host, config.listen_port
        self._access_file = access_file(config, disk, clock)
        """As keys and certificates one for all roles: a file that has become bad must not end the
        broker at a switch."""
        self._waiting = WaitingPort(
            address, clock, lambda: self._waits_for, transport, self._files.server_tls
        )
        self.running: BrokerController | None = None
        """The broker of the role of this moment, None while there is none."""
        self.role: Assignment | None = None

    async def start(self) -> None:
        """Begin to ask the controllers. Errors: `FatalError`."""
        config = self._config
        await check_port_free("listenPort", config.listen_host, config.listen_port)
        check_no_group(self._disk, config)
        self._credentials.load()
        self._registration.load()
        self._progress.load()
        if self._access_file is not None:
            self._access_file.load()
        self._tasks.every("credentials", CREDENTIALS_MS, self._credentials.refresh)
        self._tasks.spawn("heartbeats to controllers", self._beat())
        self._tasks.spawn("role of this broker", self._live())
        self._tasks.spawn("in-sync set", self._keep())

    async def stop(self) -> None:
        """Go down cleanly.

        A role that ends just now is let end: cut short, it would leave its directory unclean. None
        begins to end while the tasks are being cancelled, either.
        """
        async with self._ending:
            await self._tasks.stop()
        await self._waiting.close()
        await self._end_role("the broker stops")
        await self._client.close()

    # What it tells

    def _sign(self, command: RemotingCommand, address: str) -> RemotingCommand:
        nonce = "".join(f"{self._rng.randint(0, 2**31 - 1):08x}" for _ in range(4))
        credentials, audience = self._credentials.credentials, CONTROLLER_AUDIENCE + address
        return signed(command, credentials, self._clock.wall_ms(), nonce, audience)

    async def _beat(self) -> None:
        """Tell all controllers that this broker lives, and what it has."""
        period_ms = self._config.controller_beat_ms
        while True:
            begun_ms = self._clock.monotonic_ms()
            await self._beat_once()
            left_ms = period_ms - (self._clock.monotonic_ms() - begun_ms)
            await asyncio.sleep(max(left_ms, 0) / 1000)

    async def _beat_once(self) -> None:
        if self._registration.is_done:
            epoch, end = self._progress.of(self.running)
            fields = {
                "brokerAddr": self._config.broker_addr,
                "brokerId": str(self._registration.own_id),
                "epoch": str(epoch),
                "maxOffset": str(end),
                "heartbeatTimeoutMills": str(self._config.controller_silence_ms),
            }
            # One that swallows what it is sent must not keep the others waiting for the next beat.
            await self._controllers.beat(fields, min(ASK_MS, self._config.controller_beat_ms))

    async def _greet(self) -> None:
        """Tell a controller that leads since just now that this broker lives, if it is not soon.

        One that has just started takes whom it has not heard of for dead before a long period ends.
        """
        if self._controllers.found != self._greeted:
            self._greeted = self._controllers.found
            if self._config.controller_beat_ms >= GREET_MS:
                await self._beat_once()

    def _on_notice(self, _: object, command: RemotingCommand) -> None:
        """1008: there is another master, says a controller; the one that leads is asked."""
        del command
        self._notice.set()

    async def _keep(self) -> None:
        """Have the in-sync set be what it should be, while this broker is master."""
        while True:
            if self._keeper is not None and await self._keeper.step():
                self._notice.set()
            await asyncio.sleep(KEEP_S)

    # What it is

    async def _live(self) -> None:
        """Be what the controllers say, for ever."""
        while True:
            try:
                if not self._registration.is_done:
                    await self._registration.register(self._progress)
                    await self._beat_once()
                view = await self._ask()
                self._heard_ms = self._clock.monotonic_ms()
                await self._greet()
                await self._follow(view)
            except Unanswered as error:
                await self._on_silence(str(error))
            except NotRegistered as error:
                await self._end_role(str(error))
                self._wait_for(str(error))
            except NoRoom as error:
                await self._on_full_disk(str(error))
            if self.running is None:
                await self._waiting.look()
            await self._pause()

    async def _pause(self) -> None:
        """Wait for the next time to ask, or for a notice."""
        with contextlib.suppress(TimeoutError):
            async with timeout(self._config.controller_poll_ms / 1000):
                await self._notice.wait()
        self._notice.clear()

    async def _ask(self) -> View:
        """Return what the controller that leads says. Errors: `Unanswered`, `NotRegistered`."""
        answer = await self._controllers.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, {})
        if answer.code != ResponseCode.SUCCESS or answer.view is None:
            self._registration.forget()
            raise NotRegistered(f"the controllers answer {answer.code}: {answer.remark}")
        return answer.view

    async def _on_silence(self, reason: str) -> None:
        """No controller answers: a slave goes on; a master does for a while."""
        silent_ms = self._clock.monotonic_ms() - self._heard_ms
        if isinstance(self.role, AsMaster):
            if silent_ms < self._config.controller_silence_ms:
                return
            await self._resign(f"no controller was reached for {silent_ms} ms")
        if self.role is None:
            self._wait_for(
                f"no controller of {self._config.controller_addr} decides ({reason}); a majority"
                " of the name servers with enableControllerInNamesrv=true has to run"
            )

    async def _on_full_disk(self, reason: str) -> None:
        """Have no role until there is room; if it was elected, there is another election then."""
        await self._end_role("the disk is full")
        self._registration.forget()
        self._wait_for(f"the disk is full ({reason}): a role begins with a few free kilobytes")
        await asyncio.sleep(ROOM_S)

    async def _follow(self, view: View) -> None:
        """Be what a controller says. Errors: `NoRoom`, `Unanswered`; `FatalError`."""
        own_id, role = self._registration.own_id, self.role
        if view.epoch < max(self._registration.epoch, 0 if role is None else role.epoch):
            return  # said by one that leads no more
        if isinstance(role, AsMaster) and (view.master, view.epoch) == (own_id, role.epoch):
            if self._keeper is not None:
                self._keeper.on_view(view)
                if self._keeper.is_stuck:
                    await self._resign("it is not known who is in sync")
            if view.older and self._progress.of(self.running)[1] == 0:
                await self._give_way(role, view)
            return
        if isinstance(role, AsMaster):
            await self._resign(f"the controllers have master {view.master} in epoch {view.epoch}")
            return
        if view.master == NO_MASTER:
            await self._want_master(view)
        elif view.master != own_id:
            await self._be_slave(view)
        elif view.epoch > self._registration.epoch:
            await self._be_master(view)
        else:
            self._registration.forget()  # of an epoch before this process was there

    async def _want_master(self, view: View) -> None:
        """Nobody is master: wait for an election, or ask for the first one."""
        if not view.epoch:
            fields = {"brokerId": str(self._registration.own_id)}
            answer = await self._controllers.ask(RequestCode.CONTROLLER_ELECT_MASTER, fields)
            if answer.code == ResponseCode.SUCCESS:
                self._notice.set()
        if self.role is None:
            members = ", ".join(map(str, sorted(view.in_sync))) or "none yet"
            self._wait_for(
                f"there is no master; one of the in-sync replicas ({members}) has to run, or"
                " ledgermq admin electMaster -a CONTROLLERS chooses one that does"
            )

    async def _give_way(self, role: AsMaster, view: View) -> None:
        """Have who has a log from before be the first master, since this one has nothing.

        Nothing was acknowledged here, so whoever is let in has all of that; nor will anything be,
        from here on. Whatever becomes of the request, there is another election. The log is closed
        before it is asked for: with a message, acknowledged or not, this one would win it.
        """
        role.in_sync.is_open = False
        reason = f"replica {view.older} has a log, and this one has none"
        await self._end_role(reason)
        if self._progress.of(None)[1]:
            await self._resign("it was sent something meanwhile")
            return
        fields = {"masterBrokerId": str(role.own_id), "masterEpoch": str(role.epoch)}
        body = set_body(frozenset({role.own_id, view.older}), view.set_epoch)
        with contextlib.suppress(Unanswered):
            await self._controllers.ask(
                RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, fields, body, DECISION_MS
            )
        await self._resign(reason)

    async def _resign(self, reason: str) -> None:
        """Be master no more; the next election is among all that are in sync."""
        _log.warning("event=master_no_more reason=%r", reason)
        if isinstance(self.role, AsMaster):
            self.role.in_sync.is_open = False  # before anything else: nothing more is acknowledged
        await self._end_role(reason)
        self._registration.forget()
        self._notice.set()

    async def _be_master(self, view: View) -> None:
        """Become the master of an epoch that has just begun."""
        own_id = self._registration.own_id
        if view.in_sync != {own_id}:
            self._registration.forget()  # somebody has been it in this epoch
            return
        if self.running is not None and isinstance(self.running.mode, SwitchedSlave):
            with _room_for_it():
                await self.running.mode.settle(view.epoch)
        await self._end_role(f"it is the master of epoch {view.epoch}")
        self._registration.epoch = view.epoch  # once is enough
        in_sync = InSync(own_id, self._config.behind_max_ms, count_min=self._config.in_sync_min)
        in_sync.on_decided(view.in_sync, view.set_epoch)
        role = AsMaster(own_id=own_id, epoch=view.epoch, in_sync=in_sync)
        config = dataclasses.replace(self._config, broker_role=Role.ASYNC_MASTER, broker_id=0)
        running = await self._begin_role(role, config)
        mode = running.mode
        assert isinstance(mode, SwitchedMaster), mode
        self._keeper = InSyncKeeper(role, self._controllers, self._clock, mode)

    async def _be_slave(self, view: View) -> None:
        """Follow the master of an epoch."""
        role = self.role
        if isinstance(role, AsSlave) and self._surplus is None:
            seen = role.epoch, role.master_address, role.ha_address
            if seen == (view.epoch, view.address, view.ha_address):
                return
        # What was found by the epochs of another master says nothing of this one.
        is_same = isinstance(role, AsSlave) and role.epoch == view.epoch
        cut_from = self._surplus if is_same else None
        await self._end_role(f"{view.master} is the master of epoch {view.epoch}")
        own_id = self._registration.own_id
        role = AsSlave(
            own_id=own_id,
            epoch=view.epoch,
            master_address=view.address,
            ha_address=view.ha_address,
            cut_from=cut_from,
            on_surplus=self._on_surplus,
        )
        # No setting is made of the address: one that is none must not end the broker.
        config = dataclasses.replace(self._config, broker_role=Role.SLAVE, broker_id=own_id)
        await self._begin_role(role, config)

    def _on_surplus(self, position: int) -> None:
        """Have the log cut: the slave is closed and opened again for that."""
        self._surplus = position
        self._notice.set()

    async def _begin_role(self, role: Assignment, config: BrokerConfig) -> BrokerController:
        """Open a broker. Errors: `NoRoom`; `FatalError`."""
        begun_ms = self._clock.monotonic_ms()
        self._waits_for = ""
        await self._waiting.close()
        self.role = role
        self._files = self._files.again(config)
        self.running = running = BrokerController(
            config,
            disk=self._disk,
            clock=self._clock,
            rng=self._rng,
            tasks=Supervisor(),
            transport=self._transport,
            assignment=role,
            access_file=self._access_file,
            files=self._files,
        )
        with _room_for_it():
            await running.start()
        _log.info(
            "event=role_taken role=%s id=%d epoch=%d ms=%d",
            type(role).__name__.removeprefix("As").lower(),
            role.own_id,
            role.epoch,
            self._clock.monotonic_ms() - begun_ms,
        )
        return running

    async def _end_role(self, reason: str) -> None:
        """Close the broker of the role that ends."""
        running = self.running
        self._keeper = None
        if running is None:
            return
        begun_ms = self._clock.monotonic_ms()
        self._progress.keep(running)
        async with self._ending:
            await running.stop()
        self._progress.keep(running)  # what was on its way is written by now
        self.running = self.role = self._surplus = None
        _log.info("event=role_ended reason=%r ms=%d", reason, self._clock.monotonic_ms() - begun_ms)

    def _wait_for(self, reason: str) -> None:
        """Say what is waited for, if that is news."""
        if reason != self._waits_for:
            self._waits_for = reason
            _log.warning("event=waits_for_a_role reason=%r", reason)


@contextlib.contextmanager
def _room_for_it() -> Iterator[None]:
    """Make of the end of a process, where the disk is full, something to wait for."""
    try:
        yield
    except FatalError as error:
        if _is_of_a_full_disk(error):
            raise NoRoom(error.message) from error
        raise


def _is_of_a_full_disk(error: FatalError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in FULL
