"""The requests that a controller answers, under RocketMQ 5's codes, fields and bodies.

Only the controller that leads answers what depends on decisions; the others answer 2007, and 1005
says who leads. Each answer about a group has its master and both epochs in its fields.
Source: ControllerRequestProcessor, AlterSyncStateSetRequestHeader and its siblings, RocketMQ 5.
"""

from collections.abc import Iterable
from typing import Any, Final, Protocol

import msgspec

from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.headers import decode_header
from ledgermq.remoting.protocol.limits import Int64
from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED
from ledgermq.remoting.transport.requests import Permission, serves
from ledgermq.runtime.clock import Clock
from namesrv.controller.commands import (
    AlterInSync,
    ApplyId,
    Code,
    Command,
    Elect,
    Outcome,
    Register,
    Remove,
)
from namesrv.controller.limits import (
    COMMAND_BYTES_MAX,
    GROUPS_MAX,
    QUESTION_BYTES_MAX,
    REPLICA_ID_MAX,
    REPLICAS_MAX,
    SILENCE_MS_MAX,
    TEXT_LENGTH_MAX,
)
from namesrv.controller.liveness import Heard
from namesrv.controller.node import Controller, NotDecided
from namesrv.controller.state import Group

OLDER_FIELD: Final = "olderLog"
"""Of an answer to 1004, ours: which replica has a log while the first master has nothing."""
SILENCE_MS: Final = 10_000
SILENCE_MS_MIN: Final = 500
NOT_SAID: Final = -1


class Peer(Protocol):
    """The connection that a request came over."""

    id: int

    def send_oneway(self, command: RemotingCommand) -> None:
        """Send a request that wants no answer."""
        ...


class NameHeader(msgspec.Struct, rename="camel"):
    """Header of 1004."""

    broker_name: str


class GroupHeader(NameHeader, rename="camel"):
    """Header of 1012."""

    cluster_name: str


class ApplyIdHeader(GroupHeader, rename="camel", kw_only=True):
    """Header of 1013."""

    applied_broker_id: Int64
    register_check_code: str


class RegisterHeader(GroupHeader, rename="camel", kw_only=True):
    """Header of 1003; all behind the address are ours."""

    broker_id: Int64
    broker_address: str
    register_check_code: str = ""
    broker_ha_address: str = ""
    broker_may_lack_end: bool = False
    last_epoch: Int64 = 0
    sync_state_set_epoch: Int64 = NOT_SAID


class AlterHeader(NameHeader, rename="camel", kw_only=True):
    """Header of 1001."""

    master_broker_id: Int64
    master_epoch: Int64


class ElectHeader(NameHeader, rename="camel", kw_only=True):
    """Header of 1002; the last one is ours."""

    broker_id: Int64 = -1
    designate_elect: bool = False
    accept_loss: bool = False


class CleanHeader(NameHeader, rename="camel", kw_only=True):
    """Header of 1011; ids are separated by semicolons."""

    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False


class HeartbeatHeader(GroupHeader, rename="camel", kw_only=True):
    """Header of 904."""

    broker_addr: str
    broker_id: Int64
    epoch: Int64 | None = None
    max_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None


class InSyncBody(msgspec.Struct, rename="camel"):
    """SyncStateSet: body of 1001, and of answers to it, 1003 and 1004."""

    sync_state_set: list[Int64]
    sync_state_set_epoch: Int64


class ControllerProcessor:
    """Answers brokers and tools."""

    def __init__(self, controller: Controller, clock: Clock) -> None:
        self._controller = controller
        self._clock = clock

    @serves(
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        what="which controller leads, and who the others are",
    )
    def metadata(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """1005. Every controller answers it."""
        controller, config = self._controller, self._controller.config
        fields = {
            "group": config.group,
            "controllerLeaderId": controller.leader,
            "controllerLeaderAddress": config.peers.get(controller.leader, ""),
            "isLeader": "true" if controller.leads else "false",
            "peers": config.peers_text,
        }
        return make_response(request, ResponseCode.SUCCESS, None, fields)

    @serves(
        RequestCode.BROKER_HEARTBEAT,
        what="a replica lives, and how far its log is",
        header=HeartbeatHeader,
        limits=(SILENCE_MS_MAX,),
        permission=Permission.REGISTRATION,
    )
    def heartbeat(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """904. Every controller listens, so that the next one that leads knows who lives."""
        header = decode_header(request, HeartbeatHeader)
        group = self._controller.groups.get(header.broker_name)
        if group is None or header.broker_id not in group.replicas:
            remark = f"{header.broker_name} has no replica {header.broker_id} here"
            return make_response(
                request, ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, remark
            )
        if len(header.broker_addr) > TEXT_LENGTH_MAX:
            remark = f"the address has more than {TEXT_LENGTH_MAX} characters"
            return make_response(request, ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
        if group.replicas[header.broker_id].address not in ("", header.broker_addr):
            remark = f"replica {header.broker_id} is registered at another address"
            return make_response(
                request, ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, remark
            )
        wanted_ms = header.heartbeat_timeout_mills or SILENCE_MS
        heard = Heard(
            at_ms=self._clock.monotonic_ms(),
            silence_ms=min(max(wanted_ms, SILENCE_MS_MIN), int(SILENCE_MS_MAX)),
            address=header.broker_addr,
            connection_id=peer.id,
            epoch=header.epoch or 0,
            max_offset=header.max_offset or 0,
        )
        self._controller.hear(header.broker_name, header.broker_id, heard)
        self._controller.notices.hear(header.broker_name, header.broker_id, peer)
        return make_response(request, ResponseCode.SUCCESS)

    @serves(
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        what="which id the next replica of a group gets",
        header=GroupHeader,
        permission=Permission.REGISTRATION,
    )
    def next_id(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """1012. It is the caller's once 1013 has said so."""
        header = decode_header(request, GroupHeader)
        if not self._controller.leads:
            return self._not_leading(request)
        group = self._controller.groups.get(header.broker_name)
        fields = {
            "clusterName": header.cluster_name,
            "brokerName": header.broker_name,
            "nextBrokerId": str(1 if group is None else group.next_id),
        }
        return make_response(request, ResponseCode.SUCCESS, None, fields)

    @serves(
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        what="an id for a new directory",
        header=ApplyIdHeader,
        limits=(GROUPS_MAX, REPLICAS_MAX, TEXT_LENGTH_MAX, REPLICA_ID_MAX),
        permission=Permission.REGISTRATION,
    )
    async def apply_id(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """1013. Asked again with the same check code it is answered as the first time."""
        header = decode_header(request, ApplyIdHeader)
        command = ApplyId(
            group=header.broker_name, cluster=header.cluster_name, id=header.applied_broker_id,
            check_code=header.register_check_code,
        )  # fmt: skip
        return await self._decide(request, command)

    @serves(
        RequestCode.CONTROLLER_REGISTER_BROKER,
        what="a replica has started, and where it is",
        header=RegisterHeader,
        limits=(TEXT_LENGTH_MAX,),
        permission=Permission.REGISTRATION,
    )
    async def register(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """1003. Whoever registers is no master before the next election."""
        header = decode_header(request, RegisterHeader)
        name, one = header.broker_name, header.broker_id
        group = self._controller.groups.get(name)
        if group is not None and _is_overtaken(header, group) and self._controller.leads:
            remark = f"this is from before the set had epoch {group.in_sync_epoch}; ask anew"
            return _answer(request, Outcome(Code.FENCED_IN_SYNC_EPOCH, remark, group))
        heard = self._controller.liveness.get(name, one)
        is_other = heard is not None and heard.connection_id != peer.id
        is_again = heard is not None and is_other and heard.address == header.broker_address
        if is_again and self._is_itself(name, one, header.register_check_code):
            self._controller.liveness.forget(name, one)  # what it had, it may have lost
        command = Register(
            group=name, cluster=header.cluster_name, id=one, address=header.broker_address,
            check_code=header.register_check_code, ha_address=header.broker_ha_address,
            other_alive=is_other, may_lack_end=header.broker_may_lack_end,
            last_epoch=header.last_epoch,
        )  # fmt: skip
        return await self._decide(request, command)

    @serves(
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        what="the master says who is in sync",
        header=AlterHeader,
        limits=(REPLICAS_MAX, COMMAND_BYTES_MAX),
        permission=Permission.REGISTRATION,
    )
    async def alter(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """1001. The body has the set, and the epoch of the set that it takes the place of."""
        header = decode_header(request, AlterHeader)
        is_small = len(request.body) <= COMMAND_BYTES_MAX  # before millions of numbers are read
        body = _body(request, InSyncBody) if is_small else None
        if body is None:
            remark = f"the body is no SyncStateSet of at most {COMMAND_BYTES_MAX} bytes"
            return _refused(request, Code.INVALID_REQUEST, remark)
        name = header.broker_name
        group = self._controller.groups.get(name)
        command = AlterInSync(
            group=name, master=header.master_broker_id, master_epoch=header.master_epoch,
            in_sync_epoch=body.sync_state_set_epoch, in_sync=tuple(body.sync_state_set),
            alive=() if group is None else self._controller.alive(name, group),
        )  # fmt: skip
        return await self._decide(request, command)

    @serves(
        RequestCode.CONTROLLER_ELECT_MASTER,
        what="a master is wanted, or a certain one",
        header=ElectHeader,
        permission=Permission.ADMINISTRATION,
    )
    async def elect(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """1002. With ``designateElect`` a living master goes, and only ``brokerId`` follows it.

        With ``acceptLoss`` that may be one that was not in sync: what it lacks is lost then.
        Nobody is preferred for the first master: who has a log from before would be shut out.
        """
        header = decode_header(request, ElectHeader)
        name = header.broker_name
        group = self._controller.groups.get(name)
        is_first = group is not None and not group.master_epoch and not header.designate_elect
        command = Elect(
            group=name,
            master_epoch=0 if group is None else group.master_epoch,
            alive=() if group is None else self._controller.alive(name, group),
            wanted=0 if is_first else max(header.broker_id, 0),
            designated=header.designate_elect,
            unclean=self._controller.config.elect_unclean or _accepts_loss(header),
        )
        return await self._decide(request, command)

    @serves(
        RequestCode.CLEAN_BROKER_DATA,
        what="remove replicas that do not come back",
        header=CleanHeader,
        limits=(REPLICAS_MAX,),
        permission=Permission.ADMINISTRATION,
    )
    async def clean(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """1011. Neither the master nor the last in-sync replica goes."""
        header = decode_header(request, CleanHeader)
        texts = (header.broker_controller_ids_to_clean or "").split(";")
        if not all(text.isascii() and text.isdigit() and len(text) <= 10 for text in texts):
            return _refused(request, Code.INVALID_REQUEST, "brokerControllerIdsToClean: 1;2;...")
        name = header.broker_name
        group = self._controller.groups.get(name)
        command = Remove(
            group=name,
            ids=tuple(map(int, texts)),
            alive=() if group is None else self._controller.alive(name, group),
            also_living=header.is_clean_living_broker,
        )
        return await self._decide(request, command)

    @serves(
        RequestCode.CONTROLLER_GET_REPLICA_INFO,
        what="the master and the in-sync set of a group",
        header=NameHeader,
    )
    def replica_info(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """1004."""
        name = decode_header(request, NameHeader).broker_name
        if not self._controller.leads:
            return self._not_leading(request)
        group = self._controller.groups.get(name)
        if group is None:
            return _refused(request, Code.GROUP_UNKNOWN, f"{name[:80]!r} is not known")
        answer = _answer(request, Outcome(Code.SUCCESS, "", group))
        older = self._controller.older_log(name, group)
        if older:
            answer.ext_fields[OLDER_FIELD] = str(older)
        return answer

    @serves(
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        what="all replicas of groups, and who lives",
        limits=(QUESTION_BYTES_MAX,),
    )
    def replicas(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """1006. The body is a list of names; an empty one asks for all, which is ours."""
        if not self._controller.leads:
            return self._not_leading(request)
        names = _body(request, list[str]) if len(request.body) <= QUESTION_BYTES_MAX else None
        if names is None:
            return _refused(request, Code.INVALID_REQUEST, "the body is not a list of names")
        groups = self._controller.groups
        table = {
            name: self._row(name, groups[name])
            for name in sorted(set(names) or groups)
            if name in groups
        }
        body = msgspec.json.encode({"replicasInfoTable": table})
        return make_response(request, ResponseCode.SUCCESS, body=body)

    def _row(self, name: str, group: Group) -> dict[str, Any]:
        alive = self._controller.alive(name, group)

        def identities(ids: Iterable[int]) -> list[dict[str, Any]]:
            return [
                {
                    "brokerName": name, "brokerId": one, "alive": one in alive,
                    "brokerAddress": group.replicas[one].address,
                }
                for one in ids
            ]  # fmt: skip

        return {
            "masterBrokerId": group.master,
            "masterAddress": _master_address(group),
            "masterEpoch": group.master_epoch,
            "syncStateSetEpoch": group.in_sync_epoch,
            "inSyncReplicas": identities(group.in_sync),
            "notInSyncReplicas": identities(
                one for one in group.replicas if one not in group.in_sync
            ),
        }

    def _is_itself(self, name: str, one: int, check_code: str) -> bool:
        """Tell whether who registers is that replica."""
        group = self._controller.groups.get(name)
        known = None if group is None else group.replicas.get(one)
        return known is not None and check_code == known.check_code

    async def _decide(self, request: RemotingCommand, command: Command) -> RemotingCommand:
        try:
            return _answer(request, await self._controller.decide(command))
        except NotDecided as error:
            return _refused(request, Code.NOT_LEADER, str(error))

    def _not_leading(self, request: RemotingCommand) -> RemotingCommand:
        leader = self._controller.leader or "not known"
        return _refused(request, Code.NOT_LEADER, f"the controller that leads is {leader}")


def _is_overtaken(header: RegisterHeader, group: Group) -> bool:
    """Tell whether a loss of power is told of that another registration has told of since.

    Whoever was elected after that one would lose its office, and what it has acknowledged alone.
    """
    told = header.sync_state_set_epoch
    return header.broker_may_lack_end and told not in (NOT_SAID, group.in_sync_epoch)


def _accepts_loss(header: ElectHeader) -> bool:
    """Tell whether an administrator names one to be the master whatever it lacks."""
    return header.designate_elect and header.accept_loss


def _answer(request: RemotingCommand, outcome: Outcome) -> RemotingCommand:
    group = outcome.group
    if group is None:
        return _refused(request, outcome.code, outcome.remark)
    fields = {
        "masterBrokerId": str(group.master),
        "masterAddress": _master_address(group),
        "masterEpoch": str(group.master_epoch),
        "syncStateSetEpoch": str(group.in_sync_epoch),
        "newSyncStateSetEpoch": str(group.in_sync_epoch),
    }
    if group.master:
        fields["masterHaAddress"] = group.replicas[group.master].ha_address
    body = msgspec.json.encode(InSyncBody(list(group.in_sync), group.in_sync_epoch))
    remark = outcome.remark or None
    return make_response(request, outcome.code, remark, fields, body)


def _refused(request: RemotingCommand, code: Code, remark: str) -> RemotingCommand:
    return make_response(request, code, remark)


def _master_address(group: Group) -> str:
    return group.replicas[group.master].address if group.master else ""


def _body(request: RemotingCommand, kind: Any) -> Any:  # noqa: ANN401 - whatever kind it is
    """Return the body, None if it is none of that kind."""
    try:
        return msgspec.json.decode(request.body or b"[]", type=kind)
    except NOT_DECODED:
        return None
