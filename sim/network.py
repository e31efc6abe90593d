"""The network between the machines: who listens, how connections begin, and what is cut.

Addresses are strings; a link is one direction between two of them. A *cut* stops packets of one
direction: bytes already under way arrive, later ones wait at the sender, as TCP repeats them, until
the link heals or the sender's patience (user timeout) ends. Handshakes need both directions.
"""

import asyncio
import contextvars
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from sim.context import CURRENT, DEAD, Process
from sim.handle import SimHandle
from sim.kernel import Kernel
from sim.link import LAN, LOOPBACK, Delay, Link
from sim.rules import Action, FrameRule
from sim.transport import CLOSE, SimTransport

if TYPE_CHECKING:
    from sim.rng import SplitRng

OUTSIDE: Final = "127.0.0.1"
"""Address of code that belongs to no host."""
EPHEMERAL_PORT: Final = 32_768
SYN_RETRIES: Final = 6
"""After 1, 2, 4... seconds; then the attempt has timed out."""
NS: Final = 1_000_000_000
HEAL_NS_MAX: Final = 1_000_000_000
"""A link that heals carries data again after at most so long: retransmission timers."""

_OWN: Final = frozenset({"", "0.0.0.0", "127.0.0.1", "localhost", "::", "::1"})  # noqa: S104 - names
_KERNEL: Final = contextvars.Context()

ProtocolFactory = Callable[[], asyncio.BaseProtocol]
Name = tuple[str, int]


class Loop(Kernel, Protocol):
    """What the network needs of the loop."""

    def create_future(self) -> "asyncio.Future[None]":
        """Return a future of the loop."""
        ...


class SimServer(asyncio.AbstractServer):
    """A listening socket."""

    def __init__(
        self, network: "SimNetwork", factory: ProtocolFactory, name: Name, *, accepts: bool
    ) -> None:
        """Have ``name`` for the process that is running now; ``accepts``: and listen there."""
        self.accepts = accepts
        self._network = network
        self.factory = factory
        self.name = name
        self.process = CURRENT.get()
        self.context = contextvars.copy_context()
        if self.process is not None:
            self.process.sockets[self] = None

    @property
    def sockets(self) -> tuple["_Listening", ...]:
        """One socket while it has the port."""
        return (_Listening(self.name),) if self._has_port() else ()

    def _has_port(self) -> bool:
        return self._network.listeners.get(self.name) is self

    def is_serving(self) -> bool:
        """Tell whether it listens."""
        return self.accepts and self._has_port()

    def close(self) -> None:
        """Stop listening; connections stay."""
        if self._has_port():
            del self._network.listeners[self.name]
        if self.process is not None:
            self.process.sockets.pop(self, None)

    async def wait_closed(self) -> None:
        """Nothing to wait for, as in Python 3.11."""

    async def start_serving(self) -> None:
        """Listen, from now on."""
        self.accepts = True

    async def serve_forever(self) -> None:
        """Not here: nothing would end it."""
        raise NotImplementedError

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop."""
        return asyncio.get_running_loop()

    def on_killed(self, ending: str) -> None:
        """The process is gone, so nobody listens."""
        del ending
        self.close()


class _Listening:
    """What a server's ``sockets`` are asked for."""

    __slots__ = ("_name",)

    def __init__(self, name: Name) -> None:
        self._name = name

    def getsockname(self) -> Name:
        return self._name


class SimNetwork:
    """All links and listeners of one world."""

    def __init__(self, loop: Loop, rng: "SplitRng") -> None:
        """Make a network where everything works."""
        self._loop = loop
        self._rng = rng
        self._names: dict[str, str] = {}
        self._powerless: dict[str, None] = {}
        self._ports: dict[str, int] = {}
        self._rules: list[FrameRule] = []
        self.delay_default = LAN
        self.links: dict[tuple[str, str], Link] = {}
        self.listeners: dict[Name, SimServer] = {}
        self.on_connected: Callable[[SimTransport, SimTransport], None] = lambda _near, _far: None
        """Hears of each connection: the end that asked for it, and the other."""
        self.connected = 0
        """Connections that were made."""
        self.refused = 0
        """Attempts at ports where nobody listened."""
        self.resets = 0
        """Connections that `reset` has ended."""

    def add_address(self, address: str, name: str) -> None:
        """Let a machine be there, with a name that resolves."""
        self._names[name] = self._names[address] = address

    def link(self, source: str, target: str) -> Link:
        """Return the link from one address to another."""
        found = self.links.get((source, target))
        if found is None:
            delay = LOOPBACK if source == target else self.delay_default
            found = Link(source, target, delay, self._rng.split(f"{source}>{target}"))
            found.rules = [rule for rule in self._rules if rule.is_for(source, target)]
            self.links[source, target] = found
        return found

    # Faults

    def cut(self, source: str, target: str, *, acks: bool = True) -> None:
        """Stop everything from ``source`` to ``target``.

        Without ``acks`` only payloads stop: the other direction works on as if nothing were.
        """
        link = self.link(source, target)
        link.cut = True
        link.cut_acks = acks
        link.cut_since_ns = self._loop.now_ns
        self._loop.trace.event("cut", source, target=target, acks=int(acks))

    def heal(self, source: str, target: str) -> None:
        """Let everything pass again, from the next retransmission on."""
        link = self.link(source, target)
        if not link.cut:
            return
        link.cut = link.cut_acks = False
        link.changed_ns = self._loop.now_ns
        self._loop.trace.event("heal", source, target=target, stopped=link.stopped)
        longest = min(self._loop.now_ns - link.cut_since_ns, HEAL_NS_MAX)
        for one in (link, self.link(target, source)):
            for transport in list(one.sockets):
                self._after(link.rng.randint(0, longest), transport.on_healed)

    def heal_all(self) -> None:
        """Heal all links, and forget all delays and rules."""
        for link in list(self.links.values()):
            self.heal(link.source, link.target)
            link.set_delay(LOOPBACK if link.source == link.target else self.delay_default)
        for rule in list(self._rules):
            self.remove_rule(rule)

    def delay(self, source: str, target: str, delay: Delay) -> None:
        """Let packets of a link take another time from now on."""
        link = self.link(source, target)
        link.set_delay(delay)
        link.changed_ns = self._loop.now_ns
        self._loop.trace.event("delay", source, target=target, base=delay.base_us)

    def reset(self, source: str, target: str) -> int:
        """End all connections between two addresses for both ends; return how many there were."""
        ends = [*self.link(source, target).sockets, *self.link(target, source).sockets]
        for transport in ends:
            transport.reset()
        self.resets += len(ends) // 2
        self._loop.trace.event("reset", source, target=target, connections=len(ends) // 2)
        return len(ends) // 2

    def reset_one_end(self, source: str, target: str) -> list[SimTransport]:
        """End all connections between two addresses for the first; return the other ends.

        Those hear nothing of it, as if packets that say so were lost on the way.
        """
        sockets = self.link(source, target).sockets
        ends = [one for one in sockets if isinstance(one, SimTransport)]
        for transport in ends:
            transport.silent = transport._eof_sent = True
            transport.reset()
        self.resets += len(ends)
        self._loop.trace.event("reset", source, target=target, connections=len(ends))
        return [transport.peer for transport in ends]

    def has_half_open(self, source: str, target: str) -> bool:
        """Tell whether an address holds a connection to another one whose end there is gone."""
        ends = [one for one in self.link(source, target).sockets if isinstance(one, SimTransport)]
        return any(one.peer._lost or one.peer._is_dead() for one in ends if not one._is_dead())

    def add_rule(self, rule: FrameRule) -> None:
        """Treat frames as a rule says; see `sim.frames`."""
        self._rules.append(rule)
        self._loop.trace.event("rule", rule.source or "*", to=rule.target, action=rule.action.value)
        self._spread_rules()

    def remove_rule(self, rule: FrameRule) -> None:
        """Take a rule back."""
        if rule in self._rules:
            self._rules.remove(rule)
            self._loop.trace.event("rule_end", rule.source or "*", applied=rule.applied)
            self._spread_rules()

    def power_off(self, address: str) -> None:
        """Let a machine be silent: no answer to anything, not even a reset."""
        self._powerless[address] = None

    def power_on(self, address: str) -> None:
        """Let its kernel answer again; it remembers no connection."""
        self._powerless.pop(address, None)

    def is_reachable(self, address: str) -> bool:
        """Tell whether the machine at an address has power."""
        return address not in self._powerless

    # For the loop

    def listen(
        self, factory: ProtocolFactory, host: str | None, port: int, *, accepts: bool = True
    ) -> SimServer:
        """Listen, or have the port alone.

        Errors: `OSError` when the port is taken or the address is another machine's.
        """
        own = self._own_address()
        address = own if (host or "") in _OWN else self._resolve(str(host))
        if address != own:
            raise OSError(errno.EADDRNOTAVAIL, f"cannot assign requested address {host}")
        if port == 0:
            port = self._free_port(address)
        if (address, port) in self.listeners:
            raise OSError(errno.EADDRINUSE, f"address already in use: {address}:{port}")
        server = SimServer(self, factory, (address, port), accepts=accepts)
        self.listeners[address, port] = server
        return server

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int, source: str | None = None
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """Make a connection. Errors: `OSError`: refused, timed out, no such name."""
        own = self._own_address()
        target = own if host in _OWN else self._resolve(host)
        start = own if source is None or source in _OWN else source
        names = (start, self._free_port(start)), (target, port)
        attempt = _Attempt(self, self._loop, names)
        attempt.send_syn()
        try:
            await attempt.done
        except asyncio.CancelledError:
            attempt.give_up()
            raise
        transport = attempt.transport
        assert transport is not None
        protocol = factory()
        transport.start(protocol)
        return transport, protocol

    def _own_address(self) -> str:
        process = CURRENT.get()
        return OUTSIDE if process is None else process.host.address

    def _resolve(self, host: str) -> str:
        address = self._names.get(host)
        if address is None:
            raise OSError(errno.EHOSTUNREACH, f"no route to host {host}")
        return address

    def _free_port(self, address: str) -> int:
        port = self._ports.get(address, EPHEMERAL_PORT)
        while (address, port) in self.listeners:
            port += 1
        self._ports[address] = port + 1
        return port

    @property
    def has_rules(self) -> bool:
        """Whether anything is done to single frames."""
        return bool(self._rules)

    def _spread_rules(self) -> None:
        for link in self.links.values():
            link.rules = [rule for rule in self._rules if rule.is_for(link.source, link.target)]
            if not any(rule.action is Action.REPLAY for rule in link.rules):
                link.frames.clear()

    def _after(self, delay_ns: int, callback: Callable[[], None]) -> None:
        when = self._loop.now_ns + delay_ns
        self._loop.post(when, SimHandle(when, callback, (), _KERNEL, None))


class _Attempt:
    """A handshake: there, back, and the accept at the other end."""

    __slots__ = (
        "_context",
        "_loop",
        "_names",
        "_network",
        "_process",
        "_tries",
        "done",
        "transport",
    )

    def __init__(self, network: SimNetwork, loop: Loop, names: tuple[Name, Name]) -> None:
        self._network = network
        self._loop = loop
        self._names = names
        self._process: Process | None = CURRENT.get()
        self._context = contextvars.copy_context()
        self._tries = 0
        self.done = loop.create_future()
        self.transport: SimTransport | None = None

    def send_syn(self) -> None:
        """Ask the other machine."""
        link = self._link_out()
        if not link.cut_acks and self._is_alive():
            self._network._after(link.draw_ns(), self._on_syn)
        else:
            self._retry()

    def give_up(self) -> None:
        """Nobody waits any more."""
        if self.done.done() and not self.done.cancelled():
            self.done.exception()  # nobody else will look at it
        if self.transport is not None:
            self.transport.abort()

    def _link_out(self) -> Link:
        return self._network.link(self._names[0][0], self._names[1][0])

    def _link_back(self) -> Link:
        return self._network.link(self._names[1][0], self._names[0][0])

    def _retry(self) -> None:
        """Nothing came back: try again when the timer says so."""
        if self.done.done() or not self._is_alive():
            return
        wait_ns = NS << self._tries
        self._tries += 1
        again = self.send_syn if self._tries <= SYN_RETRIES else self._time_out
        self._network._after(wait_ns, again)

    def _is_alive(self) -> bool:
        return not self.done.done() and (self._process is None or self._process.state != DEAD)

    def _time_out(self) -> None:
        if self._is_alive():
            self._finish(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    def _on_syn(self) -> None:
        """At the other machine."""
        back = self._link_back()
        if not self._network.is_reachable(back.source) or back.cut_acks:
            self._retry()
            return
        server = self._network.listeners.get(self._names[1])
        listens = server is not None and server.accepts
        self._network._after(back.draw_ns(), self._on_answer if listens else self._on_refusal)

    def _on_refusal(self) -> None:
        if self._is_alive():
            self._network.refused += 1
            target, port = self._names[1]
            self._finish(
                ConnectionRefusedError(
                    errno.ECONNREFUSED, f"{target}:{port} refused the connection"
                )
            )

    def _on_answer(self) -> None:
        """Back here: connected; the other end accepts when our acknowledgement arrives."""
        server = self._network.listeners.get(self._names[1])
        if not self._is_alive():
            return
        if server is None or not server.accepts:
            self._on_refusal()
            return
        loop, out, back = self._loop, self._link_out(), self._link_back()
        here, there = self._names
        near = SimTransport(loop, self._process, self._context, (out, back), (here, there))
        context = server.context.copy()
        far = SimTransport(loop, server.process, context, (back, out), (there, here))
        near.peer, far.peer = far, near
        self.transport = near
        self._network.connected += 1
        self._network.on_connected(near, far)
        when = loop.now_ns + out.draw_ns()
        accept = SimHandle(when, _accept, (server, far), context, server.process)
        loop.post(when, accept)
        near.expect_after(when)
        self._finish(None)

    def _finish(self, error: OSError | None) -> None:
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


def _accept(server: SimServer, transport: SimTransport) -> None:
    """Give a connection to the process that listens; in its context."""
    if server.is_serving():
        transport.start(server.factory())
    else:
        transport.on_killed(CLOSE)
