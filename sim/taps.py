"""Which connections are listened to, and by whom.

It knows machines and ports, not what is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.layout import BROKER_PORT, NAMESRV_PORT
from sim.oracles.broker_end import BrokerEnd
from sim.oracles.wire import Listeners, Tap

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sim.context import Process
    from sim.loop import SimLoop
    from sim.oracles.replica import Replica
    from sim.oracles.watch import Watch
    from sim.oracles.wire import Listener
    from sim.transport import SimTransport


class Taps:
    """Has what is said on new connections judged.

    Args:
        loop: whose time it is.
        watch: who judges what replicas answer.
        replicas: those whose process runs.
        askers: a port, the hosts who ask there, and who listens to them.
        ends: by host, who listens to what a broker outside the group, or a name server, answers.
        also: listens at the end of each replica and each name server besides.
    """

    def __init__(
        self,
        loop: SimLoop,
        watch: Watch,
        replicas: Mapping[Process, Replica],
        askers: Collection[tuple[int, Collection[str], Listener]],
        ends: Mapping[str, Listener],
        also: Listener,
    ) -> None:
        self._loop = loop
        self._watch = watch
        self._replicas = replicas
        self._askers = askers
        self._ends = ends
        self._also = also

    def listen(self, near: SimTransport, far: SimTransport) -> None:
        """Listen to a connection that somebody has opened, at one end of it or at both."""
        port = far.local[1]
        replica = self._replicas.get(far.process) if far.process is not None else None
        if replica is not None and port == BROKER_PORT:
            brokers = self._watch.brokers
            end = Listeners(BrokerEnd(brokers, replica), self._also)
            far.tap = tap = self._tap(end, far, asks=False)
            tap.on_pushed = brokers.members(replica).replying.on_pushed
            brokers.add(replica, tap)
        elif port in {BROKER_PORT, NAMESRV_PORT} and far.process is not None:
            answers = self._ends.get(far.process.host.name)
            far.tap = None if answers is None else self._tap(answers, far, asks=False)
        if near.process is None:
            return
        for asked, names, listener in self._askers:
            if port == asked and near.process.host.name in names:
                near.tap = self._tap(listener, near, asks=True)

    def _tap(self, listener: Listener, end: SimTransport, *, asks: bool) -> Tap:
        loop = self._loop
        return Tap(listener, end, lambda: loop.now_ns, self._watch.findings, asks=asks)
