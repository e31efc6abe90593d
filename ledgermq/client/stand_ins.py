"""Slaves that stand in for a master that is gone: which, since when, and when to look for it again.

RocketMQ's clients take any slave as soon as routes name no master. Here a slave stands in once its
master has failed for `STAND_IN_AFTER_MS`, whether or not routes still name it, and only if it has
shown that it serves reads: the followers of a Raft group do not, and their offsets are not asked
for. Every `PROBE_MS` somebody asks the master again; the first answer ends it all.

Pure; it sends nothing, and times are the monotonic clock's.
Source: RocketMQ MQClientInstance.findBrokerAddressInSubscribe, findBrokerAddressInAdmin.
"""

import logging
from collections.abc import Mapping
from typing import Final, Protocol

from ledgermq.client.route import MASTER_ID

_log = logging.getLogger(__name__)

STAND_IN_AFTER_MS: Final = 2_000
"""How long a master fails before reads go elsewhere; a Raft group elects in less."""
PROBE_MS: Final = 1_000
REFUSED_MS: Final = 10_000
"""A slave that does not serve reads is asked again only after this."""


class Addresses(Protocol):
    """What is needed of the routes."""

    @property
    def brokers(self) -> Mapping[str, Mapping[int, str]]:
        """Broker name to broker id to address."""
        ...


class _Failing:
    """One broker name whose master fails."""

    __slots__ = ("last_slave", "master", "probe_ms", "proven", "refused", "since_ms")

    def __init__(self, master: str | None, since_ms: int) -> None:
        self.master = master
        self.since_ms = since_ms
        self.probe_ms = since_ms + STAND_IN_AFTER_MS + PROBE_MS
        self.proven: set[str] = set()
        self.refused: dict[str, int] = {}
        """By address, when it may be asked again."""
        self.last_slave = ""


class StandIns:
    """Those of one client."""

    def __init__(self, routes: Addresses) -> None:
        self._routes = routes
        self._failing: dict[str, _Failing] = {}

    def choose(self, broker_name: str, now_ms: int) -> str | None:
        """Return the slave that stands in, None if the master is to be asked."""
        failing = self._failing.get(broker_name)
        if failing is None or now_ms - failing.since_ms < STAND_IN_AFTER_MS:
            return None
        addrs = self._routes.brokers.get(broker_name, {})
        master = addrs.get(MASTER_ID)
        if master is not None and master != failing.master:
            del self._failing[broker_name]  # Another one, or it has come back: it is asked first.
            return None
        slave = next((one for one in _slaves(addrs) if self._may_ask(failing, one, now_ms)), None)
        if slave is None:
            return None
        if slave != failing.last_slave:
            failing.last_slave = slave
            _log.warning("broker=%s event=slave_stands_in addr=%s", broker_name, slave)
        return slave

    def take_probe(self, broker_name: str, now_ms: int) -> str | None:
        """Return the address of the master if it is time to look whether it answers again.

        Who gets it looks; everybody else goes on with the slave.
        """
        failing = self._failing.get(broker_name)
        master = self._routes.brokers.get(broker_name, {}).get(MASTER_ID)
        if failing is None or master is None or now_ms < failing.probe_ms:
            return None
        failing.probe_ms = now_ms + PROBE_MS
        return master

    def is_proven(self, broker_name: str, addr: str) -> bool:
        """Tell whether a slave has shown that it serves reads since its master fails."""
        failing = self._failing.get(broker_name)
        return failing is not None and addr in failing.proven

    def on_failure(self, broker_name: str, addr: str | None, t_start_ms: int) -> None:
        """Take that ``addr`` did not serve a request that began then; None: no master is known."""
        master = self._routes.brokers.get(broker_name, {}).get(MASTER_ID)
        failing = self._failing.get(broker_name)
        if addr is None or addr == master:
            if failing is None:
                self._failing[broker_name] = _Failing(master, t_start_ms)
            elif master is None:
                failing.master = None  # When one is named again, it has come back.
        elif failing is not None:
            failing.proven.discard(addr)
            failing.refused[addr] = t_start_ms + REFUSED_MS

    def on_success(self, broker_name: str, addr: str) -> None:
        """Take that ``addr`` has served a request: the master, or a slave that stands in."""
        failing = self._failing.get(broker_name)
        if failing is None:
            return
        if addr in _slaves(self._routes.brokers.get(broker_name, {})):
            failing.proven.add(addr)
            return
        del self._failing[broker_name]
        if failing.last_slave:
            _log.warning("broker=%s event=master_is_back addr=%s", broker_name, addr)

    @staticmethod
    def _may_ask(failing: _Failing, addr: str, now_ms: int) -> bool:
        return now_ms >= failing.refused.get(addr, now_ms)


def _slaves(addrs: Mapping[int, str]) -> list[str]:
    """Return the addresses of the slaves, the smallest id first."""
    return [addrs[one] for one in sorted(addrs) if one != MASTER_ID]
