"""The access file of a simulated broker: what its plan says, in the place of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.access.file import AccessFile
from sim.faults.guarded import GUARDED
from sim.guarded.accounts import document_of, draw_accounts
from sim.rng import SplitRng

if TYPE_CHECKING:
    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Disk
    from sim.faults.plan import Plan
    from sim.guarded.accounts import Account
    from sim.layout import Layout


class PlannedAccessFile(AccessFile):
    """It says what the plan says, and never changes; who reads and judges it is production's."""

    def __init__(self, text: dict[str, Any], disk: Disk, clock: Clock) -> None:
        super().__init__("/etc/plain_acl.yml", disk, clock)
        self._text = text

    def _read(self) -> object:
        return self._text

    def _stat(self) -> tuple[int, ...]:
        return (1,)


def accounts_of(plan: Plan) -> tuple[Account, ...]:
    """Return the accounts that the brokers of a plan serve."""
    return draw_accounts(SplitRng(plan.seed).split(GUARDED))


def access_file_of(layout: Layout, name: str, disk: Disk) -> AccessFile | None:
    """Return the access file of a broker; None where there is no access control."""
    if layout.plan.workload.guarded is None or name in layout.alone:
        return None
    trusted = [host.address for one, host in layout.hosts.items() if one not in layout.guarded]
    host = layout.hosts[name]
    text = document_of(accounts_of(layout.plan), trusted)
    return PlannedAccessFile(text, disk, host.clock)
