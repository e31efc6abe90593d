"""A master and a slave whose roles controllers gave them, each for one epoch.

An epoch is on disk before the log takes anything in it. A slave cuts its log when it is opened, if
that was found to be due, and never below what counts.
Source: docs/adr/0020.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from broker.modes.lost_end import loss_mark
from broker.modes.over_plain import OverPlain, ha_door, is_open_to_strangers
from broker.modes.plain import PlainMode
from broker.ports import check_port_free
from broker.processor.epochs import EpochProcessor
from broker.slave_sync.build import build_slave_sync
from broker.slave_sync.signed import calls_of
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.runtime.cancel import timeout
from store.dispatch.anomalies import Copied
from store.ha.switch.confirmed import PERIOD_S, ConfirmedFile
from store.ha.switch.epoch_file import EpochFile
from store.ha.switch.epochs import clip
from store.ha.switch.logs import SwitchMasterLog, SwitchSlaveLog
from store.ha.switch.master import SwitchHaMaster
from store.ha.switch.slave import Place, SwitchHaSlave

if TYPE_CHECKING:
    from broker.core import Core
    from broker.modes.assignment import AsMaster, Assignment, AsSlave
    from store.plain import PlainLog

SETTLE_S: Final = 10
SETTLE_STEP_S: Final = 0.005

_log = logging.getLogger(__name__)


class SwitchedMaster(OverPlain):
    """The parts of a broker that is the master of one epoch."""

    def __init__(self, core: Core, role: AsMaster) -> None:
        config = self._config = core.config
        disk, clock, _, on_fatal = core.machine
        self._role = role
        self._tasks = core.tasks
        self._own_log = log = SwitchMasterLog(
            config.plain_log_config(), role.in_sync, disk=disk, clock=clock, on_fatal=on_fatal
        )
        super().__init__(_over_copied(core, log))
        self._epochs = EpochFile(config.store_path, disk)
        self._confirmed = ConfirmedFile(config.store_path, disk)
        self.processors = (*self.processors, _epoch_processor(core, role, log, self._epochs))
        self._address = (config.listen_host, config.ha_port)
        door = ha_door(config, self.credentials, core.rng)
        self._ha = SwitchHaMaster(config.ha_config(), log, clock, self._address, door, role.in_sync)

    @property
    def term(self) -> int:
        """Term that name servers are told: the epoch."""
        return self._role.epoch

    async def check(self) -> None:
        """Find out whether this broker may start here. Errors: `FatalError`."""
        await check_port_free("haListenPort", *self._address)
        await super().check()

    def open(self) -> None:
        """Open the log, and write down that its epoch begins. Errors: `FatalError`."""
        super().open()
        log, epochs = self._own_log, self._epochs
        self._confirmed.load(log.end_position)
        epochs.load()
        _begin_epoch(epochs, log, self._role.epoch)
        self._ha.epochs = epochs.epochs

    async def begin(self) -> None:
        """Let slaves come. Errors: `FatalError`."""
        await super().begin()
        if is_open_to_strangers(self._config):
            _log.warning(
                "event=slaves_not_authenticated address=%s:%d: whoever reaches it can read all"
                " messages, and pass for a slave; set peerSharedKeyFile on all of this name",
                *self._address,
            )
        await self._ha.start()
        self._tasks.spawn("confirmed position", _keep_confirmed(self._own_log, self._confirmed))

    async def end(self) -> None:
        """Leave the slaves."""
        await self._ha.stop()
        await self._confirmed.finish()

    @property
    def committed(self) -> int:
        """Position up to which the log counts."""
        return self._own_log.committed_position

    def progress(self) -> tuple[int, int] | None:
        """Return the epoch of the last entry and the end of the log; None before it was open."""
        return _progress(self._own_log, self._epochs)

    def look_again(self) -> None:
        """Take that the in-sync set is another one."""
        self._own_log.look_again()

    def drop_outsiders(self) -> None:
        """Have slaves that are not in sync connect anew, and confirm anew what they have."""
        self._ha.drop_outsiders()

    def status(self) -> dict[str, Any]:
        """Return the log's view of itself, who follows it, and who is in sync."""
        in_sync = self._role.in_sync
        return {
            **super().status(),
            "mode": "CONTROLLED_MASTER",
            "epoch": self._role.epoch,
            "broker_id": self._role.own_id,
            "in_sync": sorted(in_sync.members),
            "slaves": self._ha.status(),
        }


class SwitchedSlave(OverPlain):
    """The parts of a broker that follows the master of one epoch."""

    def __init__(self, core: Core, role: AsSlave) -> None:
        config = core.config
        disk, clock, _, on_fatal = core.machine
        self._role = role
        self._core = core
        self._own_log = log = SwitchSlaveLog(
            config.plain_log_config(), disk=disk, clock=clock, on_fatal=on_fatal
        )
        log.cut_from = role.cut_from
        super().__init__(_over_copied(core, log))
        self._epochs = EpochFile(config.store_path, disk)
        self._confirmed = ConfirmedFile(config.store_path, disk)
        self.processors = (*self.processors, _epoch_processor(core, role, log, self._epochs))
        self._client = RemotingClient(tls=core.files.client_tls)
        self._ha = SwitchHaSlave(
            config.ha_config(),
            log,
            clock,
            ha_door(config, self.credentials, core.rng),
            Place(role.own_id, role.epoch, self._epochs),
            role.on_surplus,
        )

    @property
    def broker_id(self) -> int:
        """Id under which the broker registers."""
        return self._role.own_id

    def open(self) -> None:
        """Open the log, cut where that is due. Errors: `FatalError`."""
        super().open()
        if self._role.cut_from is not None:
            self._plain.lower_promises()
        self._confirmed.load(self._own_log.end_position)
        self._epochs.load()

    async def begin(self) -> None:
        """Follow."""
        await super().begin()
        self._own_log.confirm(self._known_confirmed())
        self._ha.set_master(self._role.ha_address)
        tasks = self._core.tasks
        tasks.spawn("confirmed position", _keep_confirmed(self._own_log, self._confirmed))
        tasks.spawn("follow the master", self._ha.run())
        client = calls_of(self._core, self._client, self.credentials)
        sync = build_slave_sync(self._core, client, self.followed_master, self.on_applied)
        tasks.spawn("follow the master's tables", sync.run())

    async def end(self) -> None:
        """Ask the master nothing more."""
        await self._client.close()
        await self._confirmed.finish()
        await super().end()

    def _known_confirmed(self) -> int:
        """Return up to where the log was acknowledged: nothing else was ever dispatched."""
        return max(self._core.store.applied, self._confirmed.position)

    def progress(self) -> tuple[int, int] | None:
        """Return the epoch of the last entry and the end of the log; None before it was open."""
        return _progress(self._own_log, self._epochs)

    async def settle(self, epoch: int) -> None:
        """Dispatch all that the log has: this broker is the master of ``epoch``, and that counts.

        Nobody is followed any more: a former master that lives still may have more to send. That
        the epoch has begun is on disk first: should the power go now, nobody is elected who lacks
        what is read by then. Errors: `FatalError`.
        """
        store, log = self._core.store, self._own_log
        self._ha.set_master("")
        try:
            async with timeout(SETTLE_S):
                await asyncio.sleep(0)  # the connection ends
                _begin_epoch(self._epochs, log, epoch)
                log.confirm(log.end_position)
                while store.applied < log.end_position:
                    await asyncio.sleep(SETTLE_STEP_S)
                    log.confirm(log.end_position)
        except TimeoutError:
            _log.warning("event=not_settled applied=%d end=%d", store.applied, log.end_position)

    def followed_master(self) -> str:
        """Return where the master answers whose log is followed; empty: nowhere."""
        return self._role.master_address if self._ha.is_following else ""

    def status(self) -> dict[str, Any]:
        """Return the log's view of itself, and how it follows."""
        return {
            **super().status(),
            "mode": "CONTROLLED_SLAVE",
            "epoch": self._role.epoch,
            "broker_id": self._role.own_id,
            "leader": self._role.master_address or None,
            "following": self._ha.status(),
        }


def _begin_epoch(epochs: EpochFile, log: PlainLog, epoch: int) -> None:
    """Write down that the log goes on in ``epoch``, unless that is done. Errors: `FatalError`."""
    known = epochs.epochs
    if not known or known[-1].epoch != epoch:
        # The first epoch stands for what there was before: nobody else's log has it.
        epochs.begin(epoch, log.next_position if known else log.first_position)


async def _keep_confirmed(log: PlainLog, file: ConfirmedFile) -> None:
    """Have on disk what counts, for ever. Errors: `FatalError`."""
    while True:
        await asyncio.sleep(PERIOD_S)
        await file.save(log.committed_position)


def _over_copied(core: Core, log: PlainLog) -> PlainMode:
    """Return the mode of a log that was copied, or may have been.

    What a broker left aside as a slave it leaves aside as the master, as do those that follow it.
    """
    return PlainMode(core, log, Copied, mark=loss_mark(core.config, core.machine.disk))


def _epoch_processor(
    core: Core, role: Assignment, log: PlainLog, epochs: EpochFile
) -> EpochProcessor:
    """Return what tells the epochs of a log."""
    names = (core.config.broker_cluster_name, core.config.broker_name)
    return EpochProcessor(names, role.own_id, lambda: (epochs.epochs, log.next_position))


def _progress(log: PlainLog, epochs: EpochFile) -> tuple[int, int] | None:
    if not log.was_opened:
        return None
    end = log.next_position
    known = clip(epochs.epochs, end)
    return (known[-1].epoch if known else 0), end
