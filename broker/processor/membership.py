"""CHANGE_MEMBERSHIP (29002, ours): add a learner to the group, promote it, remove a member.

Fields: ``op`` (add_learner, promote, remove), ``node`` (an id such as n3), ``address`` (its
``host:port`` among dLegerPeers; to add). Answered once the change is committed, with JSON: the
index of its entry, voters and learners. Otherwise 14 where this replica does not lead, 2 where the
same request may succeed later (another change is under way, the learner is behind), 1 where it
never will, or where the outcome is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from dledger.core.configuration import Change, ChangeKind
from dledger.errors import DLedgerError, MembershipRefused, NotLeader
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.transport.requests import Permission, ServedBy, serves

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dledger.operations import Operations


class Group(Protocol):
    """What is asked of the replicated log; see `dledger.node.DLedgerNode`."""

    @property
    def operations(self) -> Operations:
        """What may be asked of it while it is open."""
        ...

    def status(self) -> dict[str, object]:
        """Return, among others, who belongs to the group."""
        ...


class MembershipProcessor:
    """Changes the group that a broker's log belongs to."""

    def __init__(self, group: Group) -> None:
        self._group = group

    @serves(
        RequestCode.CHANGE_MEMBERSHIP,
        what="ours: add a learner (`op=add_learner`), `promote`, `remove`",
        fields=("op", "node", "address"),
        served_by=ServedBy.LEADER_BY_ITSELF,
        permission=Permission.ADMINISTRATION,
        needs_group=True,
        of_the_log=True,
    )
    async def handle(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take CHANGE_MEMBERSHIP."""
        try:
            change = read_change(request.ext_fields)
            index = await self._group.operations.change_membership(change)
        except NotLeader as error:
            return make_response(request, ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
        except MembershipRefused as error:
            code = ResponseCode.SYSTEM_BUSY if error.may_retry else ResponseCode.SYSTEM_ERROR
            return make_response(request, code, str(error))
        except DLedgerError as error:
            remark = f"outcome unknown: {error}"
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        status = self._group.status()
        body = {
            "index": index,
            "voters": status["voters"],
            "learners": status["learners"],
            "version": status["membership_version"],
        }
        return make_response(request, ResponseCode.SUCCESS, body=msgspec.json.encode(body))


def read_change(fields: Mapping[str, str]) -> Change:
    """Return the change that a request asks for. Errors: `MembershipRefused`."""
    op, node_id, address = (fields.get(name, "") for name in ("op", "node", "address"))
    kinds = {kind.value: kind for kind in ChangeKind}
    if op not in kinds:
        raise MembershipRefused(f"op={op}: one of {', '.join(kinds)} is expected")
    if not node_id:
        raise MembershipRefused("the field node is missing")
    return Change(kinds[op], node_id, address)
