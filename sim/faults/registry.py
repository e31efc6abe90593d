"""Faults between brokers and name servers: cut, slow and reset links, both ends down at once.

A broker registers at each change, and every half minute; what a name server missed meanwhile it is
told as soon as it can be reached. Source: spec/wire.md 3.2, 7.1.
"""

from functools import partial
from typing import TYPE_CHECKING

from sim.faults.network import Partition
from sim.faults.process import Down
from sim.faults.stage import Effect, Pair, both
from sim.link import Delay

if TYPE_CHECKING:
    from collections.abc import Callable


class RegistryLinks(Effect):
    """What is done to the links between a broker and one name server, or all of them."""

    def links(self) -> list[Pair]:
        """Return the directions concerned."""
        servers = list(self.target.namesrvs())
        if self.event.text("which", "all") == "one":
            servers = [self.rng.split("server").choice(servers)]
        side = self.event.text("side", "both")
        to = [(self.name, server) for server in servers if side in {"to", "both"}]
        return to + [(server, self.name) for server in servers if side in {"from", "both"}]


class NamesrvCut(RegistryLinks, Partition):
    """A broker and a name server do not hear each other, or one of them not the other."""

    def apply(self) -> None:
        """Cut, with or without the acknowledgements of the other direction."""
        self.acks = bool(self.event.number("acks", 1))
        super().apply()

    def pairs(self) -> list[Pair]:
        """See `Partition`."""
        return self.links()


class NamesrvDelay(RegistryLinks):
    """What a broker and a name server say to each other comes late, or is lost and sent again."""

    def apply(self) -> None:
        """Slow the links down."""
        number = self.event.number
        self._delay = Delay(
            base_us=int(1_000 * number("base_ms", 100)), spread_us=0, loss=number("loss")
        )
        for pair in self.links():
            self.stage.delay(pair, self._delay)

    def undo(self) -> None:
        """Let them be as fast as before."""
        for pair in self.links():
            self.stage.end_delay(pair, self._delay)

    def count(self) -> float:
        """Return how many packets these links carried."""
        network, address = self.target.network, self.stage.address
        return sum(network.link(address(a), address(b)).chunks for a, b in self.links())


class NamesrvReset(RegistryLinks):
    """Connections between a broker and name servers end."""

    _ended = 0

    def apply(self) -> None:
        """End them; with ``late_ms``, at the broker first, and so much later at the other end."""
        late_ms = self.event.number("late_ms")
        address, network = self.stage.address, self.target.network
        for a, b in self.links():
            if not late_ms:
                self._ended += network.reset(address(a), address(b))
            elif a == self.name:
                ends = network.reset_one_end(address(a), address(b))
                self._ended += len(ends)
                for end in ends:
                    self.stage.after(late_ms, end.reset)

    def count(self) -> float:
        """Return how many connections were ended."""
        return self._ended


class NamesrvTurn(Down):
    """A broker is killed, and a name server cannot be told for a while who leads now."""

    def apply(self) -> None:
        """Kill the broker; a moment later the name server ends, stands still, or is cut off."""
        super().apply()
        server = self.rng.split("server").choice(list(self.target.namesrvs()))
        self.stage.after(self.event.number("after_ms", 500), partial(self._turn, server))

    def _turn(self, server: str) -> None:
        target, how = self.target, self.event.text("how", "crash")
        if self.stage.is_over:
            return
        back: Callable[[], None] = partial(target.start, server)
        if how == "crash":
            target.crash(server)
        elif how == "cut":
            pairs = [pair for other in self.others() for pair in both(server, other)]
            for pair in pairs:
                self.stage.cut(pair)
            back = partial(self._heal, pairs)
        elif target.host(server).alive:
            target.pause(server)
            back = partial(self._resume, server)
        self.stage.after(self.event.number("down_ms", 100), back)

    def _heal(self, pairs: list[Pair]) -> None:
        for pair in pairs:
            self.stage.heal(pair)

    def _resume(self, server: str) -> None:
        if self.target.host(server).stopped:
            self.target.resume(server)
