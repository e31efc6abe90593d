"""Asks the controllers for the in-sync set that a master needs, and takes what they decide."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from broker.switch.controllers import DECISION_MS, Unanswered, set_body
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from broker.modes.assignment import AsMaster
    from broker.switch.controllers import Controllers, View
    from ledgermq.runtime.clock import Clock

UNCLEAR_MS: Final = 5_000
"""So long may it be unknown what became of a request: then there has to be another election."""
_NOT_MASTER: Final = frozenset({
    ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, ResponseCode.CONTROLLER_INVALID_MASTER,
})  # fmt: skip

_REFUSED: Final = frozenset({
    ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, ResponseCode.CONTROLLER_INVALID_REPLICAS,
    ResponseCode.CONTROLLER_INVALID_REQUEST, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
    ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, ResponseCode.NO_PERMISSION,
})  # fmt: skip
"""What says for certain that the set was not granted; of anything else nobody knows."""

_log = logging.getLogger(__name__)


class MasterParts(Protocol):
    """What a master has to do with its set."""

    @property
    def committed(self) -> int:
        """Position up to which its log counts."""
        ...

    def look_again(self) -> None:
        """Take that the in-sync set is another one."""
        ...

    def drop_outsiders(self) -> None:
        """Have slaves that are not in sync connect anew, and confirm anew what they have."""
        ...


class InSyncKeeper:
    """Keeps the in-sync set of one master in one epoch."""

    def __init__(
        self, role: AsMaster, controllers: Controllers, clock: Clock, master: MasterParts
    ) -> None:
        self._role = role
        self._controllers = controllers
        self._clock = clock
        self._master = master
        self._unclear_ms: int | None = None
        """Since when it is unknown what became of a request."""

    @property
    def is_stuck(self) -> bool:
        """Whether it stays unknown who may be in the set."""
        since = self._unclear_ms
        return since is not None and self._clock.monotonic_ms() - since >= UNCLEAR_MS

    def on_view(self, view: View) -> None:
        """Take what the controller that leads says of this epoch."""
        in_sync = self._role.in_sync
        if (view.master, view.epoch) != (self._role.own_id, self._role.epoch):
            return
        before, asked, set_epoch = in_sync.members, in_sync.asked, in_sync.set_epoch
        in_sync.on_decided(view.in_sync, view.set_epoch)
        if not in_sync.is_unclear:
            self._unclear_ms = None
        if in_sync.members != before:
            _log.info(
                "event=in_sync_set members=%s set_epoch=%d",
                ",".join(map(str, sorted(in_sync.members))), in_sync.set_epoch,
            )  # fmt: skip
            self._master.look_again()
        has_let_in = asked == in_sync.members and before < in_sync.members
        if in_sync.set_epoch > set_epoch + has_let_in and set_epoch:
            # Somebody may have come back without the end of its log.
            self._master.drop_outsiders()

    async def step(self) -> bool:
        """Ask for another set if one is due; return whether the role has to be looked at."""
        in_sync = self._role.in_sync
        was_holding = in_sync.is_holding
        wanted = in_sync.wanted(self._master.committed, self._clock.monotonic_ms())
        if was_holding and not in_sync.is_holding:
            self._master.look_again()  # senders that wait send nothing that would bring it up
        if wanted is None:
            return False
        in_sync.ask(wanted)
        fields = {
            "masterBrokerId": str(self._role.own_id), "masterEpoch": str(self._role.epoch),
        }  # fmt: skip
        body = set_body(wanted, in_sync.set_epoch)
        try:
            answer = await self._controllers.ask(
                RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, fields, body, DECISION_MS
            )
        except Unanswered as error:
            self._on_silence(str(error), is_certain=error.is_certain)
            return False
        if answer.code == ResponseCode.SUCCESS and answer.view is not None:
            self.on_view(answer.view)
            return False
        _log.warning("event=in_sync_set_refused code=%d reason=%r", answer.code, answer.remark)
        if answer.code in _NOT_MASTER:
            in_sync.is_open = False
            return True
        if answer.view is not None:
            self.on_view(answer.view)
        reason = f"{answer.code}: {answer.remark}"
        self._on_silence(reason, is_certain=answer.code in _REFUSED)
        return False

    def _on_silence(self, reason: str, *, is_certain: bool) -> None:
        """Nobody has answered: unless it is certain that nothing was asked, it may be granted."""
        in_sync = self._role.in_sync
        if is_certain:
            in_sync.on_refused(self._clock.monotonic_ms())
            self._master.look_again()
            return
        in_sync.on_unanswered()
        if in_sync.is_unclear and self._unclear_ms is None:
            self._unclear_ms = self._clock.monotonic_ms()
            _log.warning("event=in_sync_set_unclear reason=%r", reason)
