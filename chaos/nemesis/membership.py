"""Faults of the group itself: a member is removed and added again, leadership is handed over.

Witness of a removal: the leader names the member as a voter before, does not while it is on, and
does again once it was added and promoted; numbers: voters. Of a transfer: another led before, and
the one who was named leads in a later term; numbers: the terms of whoever leads.

Source: spec/proof.md C1, C2; docs/raft.md (membership).
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from chaos.backends.base import Cluster, ClusterFailed, Grouped
from chaos.nemesis.base import Setting, Witness
from chaos.nemesis.wait import until
from chaos.net.wire import RAFT_STATUS, StatusConnection

CHANGE, TRANSFER = 29002, 29003
ASK_S = 5.0
"""A change is answered once it is committed."""
DONE_S = 20.0
LEADS_S = 10.0
POLL_S = 0.1
FOR_NOW = ("code 2:", "code 14:", "code 1: outcome unknown")
"""How answers begin after which it is worth to ask again: busy, no leader, nobody knows."""


class Remove:
    """A follower is removed from the group; undone by adding and promoting it again."""

    kind = "remove_member"

    def __init__(self, setting: Setting, node: str) -> None:
        if not isinstance(setting.cluster, Grouped):
            raise ClusterFailed("remove_member: no member of this cluster can be removed")
        self.targets = (node,)
        self.witness = Witness(probe="voters, as the leader says: before, without it, afterwards")
        self._setting = setting
        self._node = node

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry."""
        return {"do": "member", "node": self._node}

    async def probe_before(self) -> None:
        """See that it is a voter."""
        voters = await voters_of(self._setting.cluster)
        self.witness.before = float(len(voters))
        self.witness.effective = self._node in voters

    async def apply(self) -> None:
        """Remove it. Errors: ClusterFailed if nobody does in time."""
        await change(self._setting.cluster, {"op": "remove", "node": self._node})

    async def probe_during(self) -> None:
        """See that the others go on without it."""
        await self._see_it_is_out()

    async def undo(self) -> None:
        """See that nobody has added it meanwhile; add it again."""
        await self._see_it_is_out()
        await add_again(self._setting.cluster, self._node)

    async def probe_after(self) -> None:
        """See that it is a voter again."""
        voters = await voters_of(self._setting.cluster)
        self.witness.after = float(len(voters))
        self.witness.effective = self.witness.effective and self._node in voters

    async def _see_it_is_out(self) -> None:
        voters = await voters_of(self._setting.cluster)
        self.witness.during = float(len(voters))
        out = bool(voters) and self._node not in voters
        self.witness.effective = self.witness.effective and out


class Transfer:
    """Leadership is handed to a member; there is nothing to undo."""

    kind = "transfer"

    def __init__(self, setting: Setting, node: str) -> None:
        self.targets = (node,)
        self.witness = Witness(probe="terms of who leads: before, handed over, afterwards")
        self._setting = setting
        self._node = node
        self._from: str | None = None

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry: there is nothing to lift."""
        return {"do": "nothing"}

    async def probe_before(self) -> None:
        """See that another one leads."""
        self._from = await leader_of(self._setting.cluster)
        if self._from is not None:
            before = await self._setting.probe.ask(self._from)
            self.witness.before = float(before.term)

    async def apply(self) -> None:
        """Ask the leader to hand over. Errors: ClusterFailed with its reason if it does not."""
        if self._from is None:
            raise ClusterFailed("nobody leads, so nobody can hand over")
        try:
            await _ask(self._setting.cluster, self._from, TRANSFER, {"target": self._node})
        except (OSError, TimeoutError, EOFError, ValueError) as error:
            raise ClusterFailed(f"not handed over: {error}") from error

    async def probe_during(self) -> None:
        """See that the one who was named leads, in a later term."""

        async def leads() -> bool:
            status = await self._setting.probe.ask(self._node)
            self.witness.during = float(status.term)
            return status.leads and status.term > (self.witness.before or 0.0)

        other = self._from not in {None, self._node}
        self.witness.effective = await until(leads, LEADS_S) and other

    async def undo(self) -> None:
        """Leave it as it is."""

    async def probe_after(self) -> None:
        """Note who leads in the end: others may have been elected since."""
        leader = await leader_of(self._setting.cluster)
        if leader is not None:
            self.witness.after = float((await self._setting.probe.ask(leader)).term)


async def _ask(
    cluster: Cluster, node: str, code: int, fields: dict[str, str] | None = None
) -> dict[str, Any]:
    """Ask a broker. Errors: OSError, TimeoutError, EOFError, ValueError."""
    connection = StatusConnection(*cluster.status_addr(node))
    try:
        return await connection.ask(code, ASK_S, fields)
    finally:
        connection.close()


async def _leading(cluster: Cluster) -> tuple[str, dict[str, Any]] | None:
    """Return who leads the highest term, and its status; None if nobody does."""
    found: list[tuple[int, str, dict[str, Any]]] = []
    for node in cluster.nodes:
        if cluster.state(node) != "running":
            continue
        try:
            status = await _ask(cluster, node, RAFT_STATUS)
        except (OSError, TimeoutError, EOFError, ValueError):
            continue
        if status.get("role") == "LEADER":
            found.append((int(status["term"]), node, status))
    return max(found)[1:] if found else None


async def leader_of(cluster: Cluster) -> str | None:
    """Return who leads the highest term; None if nobody does."""
    found = await _leading(cluster)
    return None if found is None else found[0]


async def voters_of(cluster: Cluster) -> frozenset[str]:
    """Return the voters as the leader names them, as soon as one leads; none if nobody does."""
    told: list[frozenset[str]] = []

    async def somebody_leads() -> bool:
        found = await _leading(cluster)
        if found is not None:
            told.append(frozenset(found[1].get("voters") or ()))
        return found is not None

    return told[-1] if await until(somebody_leads, LEADS_S) else frozenset()


async def change(cluster: Cluster, fields: dict[str, str]) -> None:
    """Have the group changed, for as long as the answer may become another one.

    Errors: ClusterFailed: refused for good, or nobody did it in time.
    """
    loop = asyncio.get_running_loop()
    end, last = loop.time() + DONE_S, "nobody leads"
    while loop.time() < end:
        found = await _leading(cluster)
        if found is not None:
            leader, status = found
            refused = None if _is_so(status, fields) else await _refused(cluster, leader, fields)
            if refused is None:
                return
            last, for_now = refused
            if not for_now:
                break
        await asyncio.sleep(POLL_S)
    raise ClusterFailed(f"{fields['op']} {fields['node']}: {last}")


async def _refused(
    cluster: Cluster, leader: str, fields: dict[str, str]
) -> tuple[str, bool] | None:
    """Ask for a change: None if it was made, else why not, and whether to ask again."""
    try:
        await _ask(cluster, leader, CHANGE, fields | _address(cluster, leader, fields))
    except ValueError as error:
        return str(error), str(error).startswith(FOR_NOW)
    except (OSError, TimeoutError, EOFError) as error:
        return f"{type(error).__name__}: {error}", True
    return None


def _is_so(status: Mapping[str, Any], fields: Mapping[str, str]) -> bool:
    """Tell whether the leader's configuration is what a change asks for."""
    voters, learners = (set(status.get(key) or ()) for key in ("voters", "learners"))
    node = fields["node"]
    if fields["op"] == "remove":
        return node not in voters | learners
    return node in (voters if fields["op"] == "promote" else voters | learners)


def _address(cluster: Cluster, leader: str, fields: Mapping[str, str]) -> dict[str, str]:
    """Return where the leader finds a new member."""
    if fields["op"] != "add_learner" or not isinstance(cluster, Grouped):
        return {}
    return {"address": cluster.member_addr(leader, fields["node"])}


async def add_again(cluster: Cluster, node: str) -> None:
    """Have a member be a voter again: idempotent. Errors: ClusterFailed."""
    for op in ("add_learner", "promote"):
        await change(cluster, {"op": op, "node": node})
