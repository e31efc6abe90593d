"""How a directory gets its id, and a process is known to the controllers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from broker.switch.controllers import DECISION_MS, number_of
from broker.switch.identity import Identity, load_identity, save_identity
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from store.ha.switch.epochs import EPOCH_FILE

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.switch.controllers import Controllers
    from broker.switch.progress import LogProgress
    from ledgermq.runtime.disk import Disk
    from ledgermq.runtime.rng import Rng

_CODE_BYTES: Final = 16

_log: Final = logging.getLogger(__name__)


class NotRegistered(Exception):  # noqa: N818  # says what is
    """The controllers do not take this broker (yet); the message says why."""


class Registration:
    """Owns the identity of one directory, and whether the controllers know of this process."""

    def __init__(
        self, config: BrokerConfig, disk: Disk, rng: Rng, controllers: Controllers
    ) -> None:
        self._config = config
        self._disk = disk
        self._rng = rng
        self._controllers = controllers
        self._identity: Identity | None = None
        self._has_id = False
        self._set_epoch: int | None = None
        """Of the in-sync set when the id was asked about; None: not told."""
        self.is_done = False
        """Whether this process is registered."""
        self.epoch = 0
        """Of the last master that there was then: of a later one this process may be the master."""

    @property
    def own_id(self) -> int:
        """Id of this replica, once it is registered."""
        assert self._identity is not None, "not registered"
        return self._identity.broker_id

    def load(self) -> None:
        """Read what the directory says. Errors: `FatalError`."""
        config = self._config
        self._identity = load_identity(
            config.store_path, self._disk, config.broker_cluster_name, config.broker_name
        )

    def forget(self) -> None:
        """Have the next `register` begin anew."""
        self.is_done = False

    async def register(self, progress: LogProgress) -> None:
        """Take an id, and tell where this broker is, and whether its log may have lost its end.

        Errors: `Unanswered`, `NotRegistered`; `FatalError` of the own disk.
        """
        identity = await self._have_id(progress.last_epoch)
        config = self._config
        fields = {
            "brokerId": str(identity.broker_id),
            "brokerAddress": config.broker_addr,
            "brokerHaAddress": config.ha_addr,
            "registerCheckCode": identity.check_code,
        }
        if progress.may_lack_end:
            fields |= {"brokerMayLackEnd": "true", "lastEpoch": str(progress.last_epoch)}
            if self._set_epoch is not None:  # should it arrive behind a later one
                fields["syncStateSetEpoch"] = str(self._set_epoch)
        answer = await self._controllers.ask(
            RequestCode.CONTROLLER_REGISTER_BROKER, fields, timeout_ms=DECISION_MS
        )
        if answer.code != ResponseCode.SUCCESS or answer.view is None:
            self._has_id = False
            raise NotRegistered(
                f"the controllers do not register id {identity.broker_id}: {answer.remark}"
            )
        if progress.may_lack_end:
            _log.warning("event=log_may_lack_its_end last_epoch=%d", progress.last_epoch)
            progress.may_lack_end = False  # they know; until a role begins, a start would find it
        self.epoch = max(self.epoch, answer.view.epoch)
        self.is_done = True

    async def _have_id(self, last_epoch: int) -> Identity:
        """Return the identity of this directory, once the controllers know it.

        They are not those of a directory that knows a later epoch than they do: elected by them, it
        could not begin an earlier one. Errors: `Unanswered`, `NotRegistered`.
        """
        identity = self._identity
        if identity is not None and self._has_id:
            return identity
        if identity is None:
            identity = await self._next_identity()
            self._save(identity)
        answer = await self._controllers.ask(
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            {
                "appliedBrokerId": str(identity.broker_id),
                "registerCheckCode": identity.check_code,
            },
            timeout_ms=DECISION_MS,
        )
        if answer.code != ResponseCode.SUCCESS:
            if not identity.is_granted:
                self._identity = None  # another new replica was faster
            raise NotRegistered(
                f"the controllers do not know id {identity.broker_id} of {identity.broker_name}"
                f" ({answer.remark}): are these the controllers that gave it?"
            )
        if answer.view is not None and answer.view.epoch < last_epoch:
            raise NotRegistered(
                f"{EPOCH_FILE} of this directory knows epoch {last_epoch}, and these controllers"
                f" have come to {answer.view.epoch}: others chose the masters of its log. Start it"
                f" with those; or, to have it begin anew with these, remove {EPOCH_FILE}"
            )
        if not identity.is_granted:
            identity = msgspec.structs.replace(identity, is_granted=True)
            self._save(identity)
        self._has_id = True
        self._set_epoch = None if answer.view is None else answer.view.set_epoch
        return identity

    def _save(self, identity: Identity) -> None:
        save_identity(self._config.store_path, self._disk, identity)
        self._identity = identity

    async def _next_identity(self) -> Identity:
        """Return what a directory without an id may ask for. Errors: `Unanswered`."""
        config = self._config
        answer = await self._controllers.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, {})
        remark = answer.remark
        try:
            next_id = number_of(answer.fields.get("nextBrokerId", ""))
        except ValueError as error:
            next_id, remark = 0, f"{remark} {error}".strip()
        if answer.code != ResponseCode.SUCCESS or not next_id:
            raise NotRegistered(f"the controllers have no id for a new replica: {remark}")
        return Identity(
            cluster_name=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=next_id,
            check_code=self._rng.token(_CODE_BYTES).hex(),
        )
