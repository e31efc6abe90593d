"""What is used of what is limited."""

from __future__ import annotations

import pytest

from broker.cluster.usage import Usage
from broker.config import BrokerConfig
from broker.tables import Tables
from ledgermq.remoting.protocol.limits import Limit, Scope, Unit
from tests.unit.broker.fakes import FakeClock

LIMIT = Limit(9, "things", Unit.COUNT, Scope.PROCESS, "nothing")


def test_use_is_counted_when_it_is_asked_for() -> None:
    things: list[int] = []
    usage = Usage()
    usage.add(LIMIT, things.__len__)
    things.append(1)
    assert usage.report() == {"things": [1, 9]}


def test_a_limit_has_one_owner() -> None:
    usage = Usage()
    usage.add(LIMIT, lambda: 1)
    with pytest.raises(AssertionError):
        usage.add(LIMIT, lambda: 2)


def test_the_replicated_tables_are_counted() -> None:
    tables = Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), FakeClock())
    tables.state.apply(1, "offset", b'{"T@g":{"0":9,"1":9}}')
    report = tables.usage.report()
    assert report["consumer offsets"] == [2 * 67, 64 * 1024 * 1024]
    assert report["topics, as a registration has them"] == [
        len(tables.topics.encode()) - 1, 7 * 1024 * 1024,
    ]  # fmt: skip
    assert set(report) >= {"consumer groups", "consumer offsets", "queue locks"}
