"""Tells brokers that there is another master (1008), over the connections of their heartbeats.

A notice only has them ask sooner: what counts is what the controller that leads answers. RocketMQ's
controllers send it to the address that a broker registered; one without a role does not listen.
Source: NotifyBrokerRoleChangedRequestHeader of RocketMQ 5.
"""

from typing import Protocol

import msgspec

from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from namesrv.controller.limits import GROUPS_MAX, REPLICAS_MAX
from namesrv.controller.state import Group, Groups

PEERS_MAX = GROUPS_MAX * REPLICAS_MAX


class Hearer(Protocol):
    """The connection that a heartbeat came over."""

    id: int

    def send_oneway(self, command: RemotingCommand) -> None:
        """Send a request that wants no answer."""
        ...


class Notices:
    """Who is to be told, and what was told last."""

    def __init__(self) -> None:
        self._peers: dict[tuple[str, int], Hearer] = {}
        self._told: dict[str, tuple[int, int]] = {}

    def hear(self, name: str, one: int, peer: Hearer) -> None:
        """Remember where a replica can be told something."""
        key = name, one
        if key in self._peers or len(self._peers) < PEERS_MAX:
            self._peers[key] = peer

    def on_connection_closed(self, connection_id: int) -> None:
        """Forget a connection."""
        gone = [key for key, peer in self._peers.items() if peer.id == connection_id]
        for key in gone:
            del self._peers[key]

    def tell(self, groups: Groups) -> None:
        """Tell the replicas of each group that has another master than was told."""
        for name, group in groups.items():
            now = group.master, group.master_epoch
            if self._told.get(name) == now:
                continue
            self._told[name] = now
            command = _notice(group)
            for one in group.replicas:
                peer = self._peers.get((name, one))
                if peer is not None:
                    peer.send_oneway(command)


def _notice(group: Group) -> RemotingCommand:
    master = group.replicas.get(group.master)
    fields = {
        "masterBrokerId": str(group.master),
        "masterAddress": "" if master is None else master.address,
        "masterEpoch": str(group.master_epoch),
        "syncStateSetEpoch": str(group.in_sync_epoch),
    }
    body = {"syncStateSet": list(group.in_sync), "syncStateSetEpoch": group.in_sync_epoch}
    return RemotingCommand(
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED, ext_fields=fields, body=msgspec.json.encode(body)
    )
