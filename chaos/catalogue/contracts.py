"""What each way to replicate promises under each fault: the contract of a run, as data.

Both checkers ask `allowance` what a run may lose of what it acknowledged, and docs/chaos.md shows
its answers as a table. A promise is a number of copies: so many nodes have a message when it is
acknowledged, and it stays while the disk of one of them does. Pure; knows no cluster.

Source: spec/proof.md 4.3 (contract); docs/replication.md (what is lost when).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chaos.catalogue.kinds import Takes

RAFT, ASYNC_MASTER, SYNC_MASTER = "raft", "async-master", "sync-master"
CONTROLLER = "controller"
QUORUM, PAIR, MASTER, IN_SYNC, NONE = "quorum", "pair", "master", "in-sync", "none"
DURABILITIES: Final = (QUORUM, PAIR, MASTER, IN_SYNC, NONE)
"""What ``durability`` in the contract of run.json may say."""


NAMED: Final = ("A1", "A55")
"""Checks of loss that name a message and the group that lacks it: each is looked at by itself."""
AFTER: Final = ("A2", "A11", "A13", "A14", "A15", "A27", "A35", "A57")
"""Others that are asked again of what was sent after the faults that took disks."""
BEFORE: Final = ("A2", "A11", "A13", "A14", "A15")
"""Those that need no end of the run: asked again of what was sent and read before these faults."""
SETTLED_NS: Final = 10_000_000_000
"""So long after such a fault what is sent, or given back, may still lie where lost messages did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeEntry:
    """One way to replicate, as ``--mode`` names it."""

    name: str
    durability: str
    """What run.json's contract says: by it the number of copies is found."""
    nodes: int
    """Brokers that the harness starts."""
    acknowledged: str
    """Who has a message that was answered SEND_OK."""
    name_servers: int = 2
    """Name servers that it starts beside them."""
    offsets_settle_ms: int = 0
    """How long it may take until all agree again on offsets that one of them took."""


_SLAVES_ASK_MS: Final = 20_000
"""Slaves ask their master for offsets every ten seconds, and give back as often what they took
while it was gone; its start takes some seconds."""
MODES: Final[Mapping[str, ModeEntry]] = {
    one.name: one
    for one in (
        ModeEntry(name=RAFT, durability=QUORUM, nodes=3, acknowledged="a majority has it"),
        ModeEntry(
            name=ASYNC_MASTER, durability=MASTER, nodes=2, acknowledged="the master has it",
            offsets_settle_ms=_SLAVES_ASK_MS,
        ),
        ModeEntry(
            name=SYNC_MASTER, durability=PAIR, nodes=2, acknowledged="master and slave have it",
            offsets_settle_ms=_SLAVES_ASK_MS,
        ),
        ModeEntry(
            name=CONTROLLER, durability=IN_SYNC, nodes=2, name_servers=3,
            acknowledged="all of the in-sync set has it", offsets_settle_ms=_SLAVES_ASK_MS,
        ),
    )
}  # fmt: skip
"""Every mode by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a run may lose.

    ``why`` is empty where it may lose nothing. ``messages_max``: as many messages of each group at
    the most; None: no number bounds it.
    """

    why: str = ""
    messages_max: int | None = None


def copies(durability: str, nodes: int) -> int:
    """Return how many of ``nodes`` have what is acknowledged.

    0 for no promise, and for a majority of nobody knows how many (``nodes`` 0).
    """
    if durability == NONE:
        return 0
    return {PAIR: 2, MASTER: 1, IN_SYNC: 1}.get(durability, nodes // 2 + 1 if nodes > 0 else 0)


def allowance(
    durability: str, flush: str, promised: int, hit: Mapping[str, int | None]
) -> Allowance:
    """Return what a run may lose by the faults that took effect.

    ``promised``: how many copies an acknowledged message has, 0 if nobody knows. ``hit``: the nodes
    from whose disks faults took what this ``flush`` promises to keep, each with the number of
    messages that it alone had then, None where nobody counted them. With an in-sync set it alone
    had none that were acknowledged as long as another in the set was whole: it is counted so.
    """
    if durability == NONE:
        return Allowance(why="the contract promises no durability")
    if durability == PAIR:  # who could count had the other's log: one of both was there each time
        hit = {node: alone for node, alone in hit.items() if alone is None}
    if promised < 1 or len(hit) < promised:
        return Allowance()
    names = ", ".join(sorted(hit))
    counted = [number for number in hit.values() if number is not None]
    if promised > 1 or len(counted) < len(hit):
        share = "a majority, " if durability == QUORUM else "all copies, " if promised > 1 else ""
        return Allowance(why=f"faults took the disks of {names}, {share}under flush={flush}")
    lag = sum(counted)
    if not lag:
        return Allowance()
    why = f"faults took the disks of {names}, which alone had {lag} messages"
    return Allowance(why=why, messages_max=lag)


def beyond(allowed: Allowance, lost: int) -> str:
    """Return in words by how much more was lost than is allowed; empty if it was not."""
    if allowed.messages_max is None or lost <= allowed.messages_max:
        return ""
    return f"{lost} are more than the {allowed.messages_max} that no other node had"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A row of the table on the page: what happens, and to whom."""

    title: str
    takes: Takes
    flush: str = "ASYNC_FLUSH"
    of_all: bool = False
    """Of every broker, not of one."""
    of_head: bool = True
    """Of the leader or master, where it is of one."""
    is_alone: bool = False
    """Whether controllers have it alone in the in-sync set."""


SITUATIONS: Final = (
    Situation(title="processes killed, stopped or paused, links cut", takes=Takes.NOTHING,
              of_all=True),
    Situation(title="loss of power, one machine, SYNC_FLUSH", takes=Takes.UNSYNCED,
              flush="SYNC_FLUSH"),
    Situation(title="loss of power, all machines, SYNC_FLUSH", takes=Takes.UNSYNCED,
              flush="SYNC_FLUSH", of_all=True),
    Situation(title="loss of power of the leader or master, ASYNC_FLUSH", takes=Takes.UNSYNCED),
    Situation(title="loss of power of another, ASYNC_FLUSH", takes=Takes.UNSYNCED, of_head=False),
    Situation(title="loss of power, all machines, ASYNC_FLUSH", takes=Takes.UNSYNCED, of_all=True),
    Situation(title="the disk of the leader or master is lost", takes=Takes.SYNCED),
    Situation(title="the same, with no slave in sync or connected", takes=Takes.SYNCED,
              is_alone=True),
    Situation(title="the disk of another is lost", takes=Takes.SYNCED, of_head=False),
    Situation(title="all disks are lost", takes=Takes.SYNCED, of_all=True),
)  # fmt: skip
"""The rows of the table on the page."""


def told(mode: ModeEntry, situation: Situation) -> str:
    """Return what a mode loses in a situation, in words, by what the checkers allow."""
    nodes = [f"n{number}" for number in range(mode.nodes)]
    at = nodes if situation.of_all else nodes[:1] if situation.of_head else nodes[1:2]
    if not situation.takes.breaks(situation.flush):
        at = []
    # What the head has and nobody else: one message is enough to tell; all together have all.
    has_some = situation.of_head and (situation.is_alone or mode.durability != IN_SYNC)
    alone = None if situation.of_all else int(has_some)
    hit = dict.fromkeys(at, alone)
    promised = copies(mode.durability, mode.nodes)
    allowed = allowance(mode.durability, situation.flush, promised, hit)
    if not allowed.why:
        return "nothing"
    return "what only these disks had" if allowed.messages_max is None else "its lag, as witnessed"
