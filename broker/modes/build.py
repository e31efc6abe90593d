"""Chooses the mode of a broker by its settings. Another mode is another line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config import Role
from broker.modes.assignment import AsMaster, AsSlave
from broker.modes.copied import anomalies_of
from broker.modes.master import MasterMode
from broker.modes.plain import PlainMode
from broker.modes.raft import RaftMode
from broker.modes.slave import SlaveMode
from broker.modes.switched import SwitchedMaster, SwitchedSlave

if TYPE_CHECKING:
    from broker.core import Core
    from broker.modes.assignment import Assignment
    from broker.modes.mode import Mode


def build_mode(core: Core, assignment: Assignment | None = None) -> Mode:
    """Return the parts of a broker that depend on what kind of broker it is.

    ``assignment``: what controllers have made it, if they say so.
    """
    match assignment:
        case AsMaster():
            return SwitchedMaster(core, assignment)
        case AsSlave():
            return SwitchedSlave(core, assignment)
    if core.config.enable_dledger:
        return RaftMode(core)
    match core.config.broker_role:
        case Role.ASYNC_MASTER | Role.SYNC_MASTER:
            return MasterMode(core)
        case Role.SLAVE:
            return SlaveMode(core)
    return PlainMode(core, anomalies=anomalies_of(core.config, core.machine.disk))
