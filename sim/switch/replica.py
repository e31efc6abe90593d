"""One broker that controllers switch, as the oracles see it: its role, its log, its files.

Source: docs/replication.md, automatic switch.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from broker.modes.assignment import AsMaster
from broker.modes.switched import SwitchedSlave
from sim.oracles.copies import Copy, Files
from store.plain import PlainLog

if TYPE_CHECKING:
    from broker.controller import BrokerController
    from broker.switch.broker import SwitchingBroker
    from sim.context import Process
    from sim.disk import SimDisk
    from sim.switch.lines import EpochLine

EPOCH_FILE: Final = "/store/epochFileCheckpoint"
IDENTITY_FILE: Final = "/store/brokerIdentity.json"
NONE: Final = (-1, -1, -1)


class Replica:
    """One broker as it is now."""

    def __init__(self, name: str, disk: SimDisk, segment_bytes: int, *, is_synced: bool) -> None:
        self.name = name
        self.disk = disk
        self.is_synced = is_synced
        """Whether it promises only what it has synced."""
        self.copy = Copy(name, Files(disk, segment_bytes))
        """Its log."""
        self.process: Process | None = None
        self.switching: SwitchingBroker | None = None
        self.controller: BrokerController | None = None
        """The broker of its role, None while it has none."""
        self.is_up = False
        """Whether its log is open, and has been read."""
        self.line: EpochLine | None = None
        """Of a master: that of its epoch."""
        self.key = NONE
        self.committed = 0
        self.is_wiped = False
        self.may_lack_end = False
        """Whether it has lost its power under ASYNC_FLUSH, and was not let in since."""

    @property
    def running(self) -> BrokerController:
        """The broker of its role."""
        assert self.controller is not None
        return self.controller

    @property
    def log(self) -> PlainLog:
        """Its log."""
        log = self.running.mode.log
        assert isinstance(log, PlainLog)
        return log

    @property
    def has_begun(self) -> bool:
        """Whether its log is open, and of a master takes entries.

        A master that cannot write its epoch down has opened the log, and ends.
        """
        return self.log._started if self.is_master else self.log._opened

    @property
    def epoch(self) -> int:
        """Epoch of its role, 0 without one."""
        role = None if self.switching is None else self.switching.role
        return 0 if role is None else role.epoch

    @property
    def is_master(self) -> bool:
        """Whether it is the master of its epoch."""
        return self.switching is not None and isinstance(self.switching.role, AsMaster)

    @property
    def own_from(self) -> int:
        """Where the epoch begins of which it is the master; its tables may have more before it."""
        return 0 if self.line is None else self.line.starts[-1][1]

    @property
    def is_following(self) -> bool:
        """Whether it follows a master whose log it has found to be its own."""
        mode = None if self.controller is None else self.controller.mode
        return isinstance(mode, SwitchedSlave) and mode._ha.is_following

    @property
    def hangs(self) -> bool:
        """Whether its process stands still because the disk does not answer."""
        return self.process is not None and self.process.alive and self.process.is_blocked

    @property
    def disk_id(self) -> int:
        """Id that its directory has; 0: none."""
        data = bytes(self.disk.look(IDENTITY_FILE))
        return int(json.loads(data)["brokerId"]) if data else 0

    def epochs_on_disk(self) -> list[tuple[int, int]]:
        """Return the epochs of its log that a loss of power leaves, and where each begins.

        While a call for the disk hangs nothing of the process goes on, and what it has asked for
        is taken for done.
        """
        hangs = self.hangs
        data = self.disk.look(EPOCH_FILE) if hangs else self.disk.durable(EPOCH_FILE)
        data = bytes(data or b"")
        rows = (line.split(b"-") for line in data.split(b"\n")[2:] if line)
        return [(int(epoch), int(start)) for epoch, start in rows]
