"""The Raft poller: asks every broker for its status several times a second, and remembers.

Each answer or silence is a row of ``raft_probe``; the latest ones tell the nemesis who leads. It
trusts nothing a node says beyond showing it. Source: spec/proof.md 4.1 (probe), 4.3 (raft_probe).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from chaos.backends.base import Cluster
from chaos.net.wire import RAFT_STATUS, StatusConnection
from chaos.record import Recorder
from ledgermq.runtime.clock import Clock

INTERVAL_S = 0.15
TIMEOUT_S = 0.4
_NUMBERS = ("term", "commit", "applied", "first_index", "last_index", "last_term")
_NAMES = ("voted_for", "leader")
LAG_ENTRIES_MAX = 200
"""A node that is this far behind still counts as caught up: commits go on while one asks."""
LAG_BYTES_MAX = 1 << 20
"""The same of a slave, whose log is told in bytes."""
LEADER, MASTER, SLAVE, FOLLOWER = "leader", "master", "slave", "follower"
_CLASSIC = {"ASYNC_MASTER": MASTER, "SYNC_MASTER": MASTER, "SLAVE": SLAVE}
"""The role of a broker that elects nobody, by the mode that it tells."""
_CONTROLLED = {"CONTROLLED_MASTER": LEADER, "CONTROLLED_SLAVE": FOLLOWER}
"""The role of one that has it from controllers; its term is the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """The last word of a node; ``ok`` false: it did not answer the last question."""

    node: str
    t_ns: int
    ok: bool
    boot_id: str = ""
    role: str = ""
    term: int = -1
    leader: str = ""
    commit: int = -1
    first_index: int = 0
    last_index: int = -1
    follows: bool = True
    """Of a slave: whether it is connected to its master, and has the same log."""
    is_plain: bool = False
    """Whether its log is told in bytes."""
    replica: int = -1
    """Its id, by which controllers know it."""
    in_sync: frozenset[int] | None = None
    """Of a master that has its role from controllers: the ids of who is in sync."""

    @property
    def leads(self) -> bool:
        """Whether it is the leader or master: who takes writes."""
        return self.ok and self.role in {LEADER, MASTER}

    def keeps_up(self, head: "NodeStatus") -> bool:
        """Tell whether it follows this leader or master, and lacks little."""
        lag_max = LAG_BYTES_MAX if head.is_plain else LAG_ENTRIES_MAX
        is_near = self.commit >= head.commit - lag_max
        is_in_sync = head.in_sync is None or self.replica in head.in_sync
        return self.ok and self.follows and self.term == head.term and is_near and is_in_sync


class Probe:
    """Polls a cluster until stopped."""

    def __init__(self, cluster: Cluster, recorder: Recorder, clock: Clock) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self.latest: dict[str, NodeStatus] = {}
        self.last_seen: dict[str, NodeStatus] = {}
        """The last answer of each node, kept when it falls silent."""

    def start(self) -> None:
        """Begin to poll, one task per node so that a silent one delays no other."""
        self._tasks = [asyncio.create_task(self._poll(node)) for node in self._cluster.nodes]

    async def stop(self) -> list[str]:
        """Stop polling; return a line for each node that was not polled to the end."""
        return await stop_all(self._tasks)

    def leader(self) -> str | None:
        """Return the node that leads the highest term, if it answers."""
        leaders = [s for s in self.latest.values() if s.leads]
        return max(leaders, key=lambda s: s.term).node if leaders else None

    def healthy(self) -> bool:
        """Return whether all nodes answer, follow one leader, and hold what it has committed."""
        states = [self.latest.get(node) for node in self._cluster.nodes]
        leader = self.leader()
        if leader is None or any(s is None or not s.ok for s in states):
            return False
        head = self.latest[leader]
        return all(s is not None and s.keeps_up(head) for s in states)

    async def ask(self, node: str) -> NodeStatus:
        """Ask one node now, on a connection of its own; not recorded."""
        host, port = self._cluster.status_addr(node)
        connection = StatusConnection(host, port)
        status, _ = await self._ask(node, connection)
        connection.close()
        return status

    async def _poll(self, node: str) -> None:
        host, port = self._cluster.status_addr(node)
        connection = StatusConnection(host, port)
        try:
            while True:
                status, row = await self._ask(node, connection)
                self.latest[node] = status
                if status.ok:
                    self.last_seen[node] = status
                self._recorder.write("raft_probe", row)
                await asyncio.sleep(INTERVAL_S)
        finally:
            connection.close()

    async def _ask(
        self, node: str, connection: StatusConnection
    ) -> tuple[NodeStatus, dict[str, Any]]:
        t0 = self._clock.monotonic_ns()
        try:
            answer = await connection.ask(RAFT_STATUS, TIMEOUT_S)
        except (OSError, TimeoutError, EOFError, ValueError):
            answer = None
        t1 = self._clock.monotonic_ns()
        row: dict[str, Any] = {"node": node, "t0": t0, "t1": t1, "ok": answer is not None}
        if answer is None:
            return NodeStatus(node=node, t_ns=t1, ok=False), row
        row["boot_id"] = str(answer.get("boot_id", ""))
        row |= {column: _number(answer.get(column)) for column in _NUMBERS}
        row |= {column: _name(answer.get(column)) for column in _NAMES}
        mode = str(answer.get("mode"))
        role = _CLASSIC.get(mode) or _CONTROLLED.get(mode)
        if role is not None:
            row["term"] = _number(answer.get("epoch")) if mode in _CONTROLLED else None
            row["last_term"] = None  # theirs means nothing
        row["role"] = role or str(answer.get("role") or "").lower() or None
        return replace(_status(node, t1, row), **_of_replication(answer, is_plain=bool(role))), row


def _of_replication(answer: dict[str, Any], *, is_plain: bool) -> dict[str, Any]:
    """Return what a status says of master and slave."""
    told, members, replica = (answer.get(key) for key in ("following", "in_sync", "broker_id"))
    return {
        "follows": not isinstance(told, dict) or told.get("state") == "following",
        "is_plain": is_plain,
        "replica": replica if isinstance(replica, int) else -1,
        "in_sync": (
            frozenset(one for one in members if isinstance(one, int))
            if isinstance(members, list)
            else None
        ),
    }


def _number(told: object) -> int | None:
    """Return a number that a table takes; what a node tells may be anything."""
    if isinstance(told, int) and not isinstance(told, bool) and abs(told) < 1 << 63:
        return told
    return None


def _name(told: object) -> str | None:
    return told if isinstance(told, str) else None


def _status(node: str, t_ns: int, row: dict[str, Any]) -> NodeStatus:
    def number(column: str, default: int) -> int:
        value = row.get(column)
        return value if isinstance(value, int) else default

    return NodeStatus(
        node=node,
        t_ns=t_ns,
        ok=True,
        boot_id=row["boot_id"],
        role=row["role"] or "",
        term=number("term", -1),
        leader=str(row.get("leader") or ""),
        commit=number("commit", -1),
        first_index=number("first_index", 0),
        last_index=number("last_index", -1),
    )


async def stop_all(polls: Sequence[asyncio.Task[None]]) -> list[str]:
    """Cancel polls, and return what ended some of them before."""
    for poll in polls:
        poll.cancel()
    ends = await asyncio.gather(*polls, return_exceptions=True)
    return [
        f"a poll ended early: {type(end).__name__}: {end}"
        for end in ends
        if isinstance(end, Exception)
    ]


def settled(states: Sequence[NodeStatus]) -> bool:
    """Return whether all nodes have committed the same, and all of it."""
    return bool(states) and len({(s.commit, s.last_index) for s in states}) == 1
