"""Faults of the network: partitions of all shapes, flapping, delays, resets, and single frames.

Source: spec/proof.md N1-N13. A partition is a list of directions between hosts; the shapes say
which.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from sim.faults.stage import Effect, Pair, both
from sim.link import Delay
from sim.rules import Action, FrameRule, peer_codes
from sim.transport import SimTransport

MESSAGES: Final[dict[str, frozenset[int] | None]] = {
    "heartbeats": peer_codes("Heartbeat"),
    "votes": peer_codes("PreVoteRequest", "PreVoteReply", "VoteRequest", "VoteReply"),
    "acks": peer_codes("AppendReply", "HeartbeatReply"),
    "appends": peer_codes("Append"),
    "changes": peer_codes("Append"),
    "transfers": peer_codes("TimeoutNow"),
    "all": None,
}
"""Codes of the messages between replicas that a fault of frames is about; None for all."""
HOLDS: Final = {"changes": b'"voters"'}
"""What frames of a kind contain: a change of the members is an entry with a configuration."""
RING_BROKERS_MIN: Final = 4
"""A ring of three would cut everything off."""


class Partition(Effect):
    """Some directions are cut."""

    acks = True
    cut_pairs: Sequence[Pair] = ()

    @abstractmethod
    def pairs(self) -> list[Pair]:
        """Return the directions to cut."""

    def apply(self) -> None:
        """Cut them."""
        self.cut_pairs = self.pairs()
        for pair in self.cut_pairs:
            self.stage.cut(pair, acks=self.acks)

    def undo(self) -> None:
        """Heal them."""
        for pair in self.cut_pairs:
            self.stage.heal(pair, acks=self.acks)

    def count(self) -> float:
        """Return how many packets met a cut between the hosts concerned."""
        network, address = self.target.network, self.stage.address
        pairs = self.cut_pairs or self.pairs()
        return sum(network.link(address(a), address(b)).stopped for a, b in pairs)

    def between(self, side: tuple[str, ...]) -> list[Pair]:
        """Return the directions between some brokers, or name servers, and the others."""
        rest = [name for name in self.peers() if name not in side]
        return [pair for a in side for b in rest for pair in both(a, b)]

    def shuffled_others(self) -> list[str]:
        """Return the other brokers in an order of the event's own."""
        others = list(self.others())
        self.rng.split("order").shuffle(others)
        return others


class Isolate(Partition):
    """One broker sees no other."""

    def pairs(self) -> list[Pair]:
        """See `Partition`."""
        return self.between((self.name,))


class Halves(Partition):
    """The brokers in two halves."""

    def pairs(self) -> list[Pair]:
        """See `Partition`."""
        others = self.shuffled_others()
        return self.between((self.name, *others[: (len(others) - 1) // 2]))


class LeaderMinority(Partition):
    """The leader on the side that cannot commit."""

    def pairs(self) -> list[Pair]:
        """See `Partition`."""
        others = self.shuffled_others()
        return self.between((self.name, *others[: len(others) // 2 - 1]))


class LeaderMajority(Partition):
    """The leader on the side that can."""

    def pairs(self) -> list[Pair]:
        """See `Partition`."""
        others = self.shuffled_others()
        return self.between((self.name, *others[: (len(others) + 1) // 2]))


class Bridge(Partition):
    """Two sides that see only a broker in the middle: the leader, or a follower."""

    def pairs(self) -> list[Pair]:
        """See `Partition`."""
        leader = self.stage.leader(self.rng.split("leader"))
        others = self.shuffled_others()
        if self.event.text("middle") == "leader":
            middle = leader
        else:
            middle = next(name for name in others if name != leader)
        sides = [name for name in (self.name, *others) if name != middle]
        half = (len(sides) + 1) // 2
        return [pair for a in sides[:half] for b in sides[half:] for pair in both(a, b)]


class Ring(Partition):
    """Each broker sees only its two neighbours."""

    def obstacle(self) -> str:
        """See `Effect`."""
        if len(self.target.brokers()) < RING_BROKERS_MIN:
            return f"a ring needs {RING_BROKERS_MIN} brokers"
        return ""

    def pairs(self) -> list[Pair]:
        """See `Partition`."""
        names = [self.name, *self.shuffled_others()]
        last = len(names) - 1
        return [
            pair
            for i, a in enumerate(names)
            for k, b in enumerate(names[i + 1 :], i + 1)
            if k - i > 1 and (i, k) != (0, last)
            for pair in both(a, b)
        ]


class OneWay(Partition):
    """What one broker sends does not arrive, or what is sent to it."""

    def apply(self) -> None:
        """Cut, with or without the acknowledgements of the other direction."""
        self.acks = bool(self.event.number("acks"))
        super().apply()

    def pairs(self) -> list[Pair]:
        """See `Partition`."""
        if self.event.text("side") == "to":
            return [(other, self.name) for other in self.others()]
        return [(self.name, other) for other in self.others()]


class ClientCut(Partition):
    """A client sees neither brokers nor name servers."""

    def pairs(self) -> list[Pair]:
        """See `Partition`."""
        servers = (*self.target.brokers(), *self.target.namesrvs())
        return [pair for server in servers for pair in both(self.name, server)]


class Flap(Isolate):
    """One broker is isolated and healed again and again."""

    def apply(self) -> None:
        """Begin with a cut."""
        self._is_cut = False
        self._is_over = False
        self._turn()

    def undo(self) -> None:
        """End healed."""
        if self._is_cut:
            super().undo()
        self._is_cut = False
        self._is_over = True

    def _turn(self) -> None:
        if self._is_over:
            return
        if self._is_cut:
            super().undo()
        else:
            super().apply()
        self._is_cut = not self._is_cut
        self.stage.after(self.event.number("period_ms", 100), self._turn)


class SlowLinks(Effect):
    """Everything between a broker and the others takes longer, and may be lost and sent again."""

    def apply(self) -> None:
        """Slow the links down."""
        number = self.event.number
        self._delay = Delay(
            base_us=int(1_000 * number("base_ms", 10)),
            spread_us=int(1_000 * number("spread_ms")),
            loss=number("loss"),
            bytes_per_ms=int(number("bytes_per_ms")),
        )
        for pair in self._pairs():
            self.stage.delay(pair, self._delay)

    def undo(self) -> None:
        """Let them be as fast as before."""
        for pair in self._pairs():
            self.stage.end_delay(pair, self._delay)

    def count(self) -> float:
        """Return how many packets these links carried."""
        network, address = self.target.network, self.stage.address
        return sum(network.link(address(a), address(b)).chunks for a, b in self._pairs())

    def _pairs(self) -> list[Pair]:
        return [pair for other in self.others() for pair in both(self.name, other)]


class Reset(Effect):
    """All connections between a broker and the other brokers end."""

    _ended = 0

    def apply(self) -> None:
        """End them."""
        here = self.stage.address(self.name)
        others = [self.stage.address(other) for other in self.others()]
        self._ended = sum(self.target.network.reset(here, other) for other in others)

    def count(self) -> float:
        """Return how many connections were ended."""
        return self._ended


class ClientReset(Effect):
    """Connections of a client to brokers end for the client; those hear of it later."""

    _ends: Sequence[SimTransport] = ()
    """The ends that brokers hold on to."""

    def apply(self) -> None:
        """End them; until ``late_ms`` later brokers hold what nobody reads."""
        here, network = self.stage.address(self.name), self.target.network
        brokers = map(self.stage.address, self.target.brokers())
        self._ends = [end for one in brokers for end in network.reset_one_end(here, one)]
        for end in self._ends:
            self.stage.after(self.event.number("late_ms"), end.reset)

    def undo(self) -> None:
        """Have brokers hear of it that have not."""
        for end in self._ends:
            end.reset()

    def count(self) -> float:
        """Return how many connections were ended."""
        return len(self._ends)


class Frames(Effect):
    """Some frames between a broker and the others are dropped, repeated, held back or changed."""

    action: Action
    _rules: Sequence[FrameRule] = ()

    def apply(self) -> None:
        """Begin."""
        here = self.stage.address(self.name)
        side = self.event.text("side", "both")
        rules: list[FrameRule] = []
        for other in map(self.stage.address, self.others()):
            if side in {"to", "both"}:
                rules.append(self._rule(other, here))
            if side in {"from", "both"}:
                rules.append(self._rule(here, other))
        self._rules = rules
        for rule in rules:
            self.target.network.add_rule(rule)

    def undo(self) -> None:
        """End."""
        for rule in self._rules:
            self.target.network.remove_rule(rule)

    def count(self) -> float:
        """Return how many frames were treated."""
        return sum(rule.applied for rule in self._rules)

    def _rule(self, source: str, target: str) -> FrameRule:
        messages = self.event.text("messages", "all")
        return FrameRule(
            self.action,
            source,
            target,
            codes=MESSAGES[messages],
            holds=HOLDS.get(messages, b""),
            probability=self.event.number("probability", 1.0),
        )


def frames(action: Action) -> Callable[..., Frames]:
    """Return the effect that does ``action`` to frames."""
    return type(action.name.capitalize() + "Frames", (Frames,), {"action": action})
