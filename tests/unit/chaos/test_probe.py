"""The poller, where a node tells what it should not, or what it heard cannot be written down."""

import asyncio

import pytest

from chaos import probe as module
from chaos.convert import read_table, write_table
from chaos.probe import Probe
from ledgermq.runtime.clock import SystemClock

ODD = (None, True, "", "x", -1, 1.5, 1 << 80, [], {}, [[]], {"a": []})


class Cluster:
    nodes = ("n0",)

    def status_addr(self, _node):
        return "127.0.0.1", 1


class Connection:
    """Answers with what it was given, once; then it is silent."""

    answer: dict = {}  # noqa: RUF012 - set by the tests

    def __init__(self, *_address):
        pass

    async def ask(self, *_about):
        return self.answer

    def close(self):
        pass


class Rows(list):
    def write(self, _table, row):
        self.append({"run_id": "r", **row})


def polled(rows, monkeypatch, answer):
    """Poll a few times; return what the poller says at its end."""
    monkeypatch.setattr(module, "StatusConnection", Connection)
    monkeypatch.setattr(module, "INTERVAL_S", 0.001)
    monkeypatch.setattr(Connection, "answer", answer)

    async def body():
        probe = Probe(Cluster(), rows, SystemClock())
        probe.start()
        await asyncio.sleep(0.05)
        return await probe.stop()

    return asyncio.run(body())


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_whatever_a_node_tells_it_is_polled_on_and_written_down(odd, monkeypatch, tmp_path):
    names = ("boot_id", "role", "term", "voted_for", "leader", "commit", "applied", "first_index")
    more = ("last_index", "last_term", "mode", "epoch", "following", "in_sync", "broker_id")
    for mode in (odd, "SLAVE", "CONTROLLED_MASTER"):
        rows = Rows()
        answer = dict.fromkeys((*names, *more), odd) | {"mode": mode}
        answer["in_sync"] = [odd]
        assert polled(rows, monkeypatch, answer) == []
        assert len(rows) > 1
        write_table(tmp_path, "raft_probe", list(rows))
        assert len(read_table(tmp_path, "raft_probe")) == len(rows)


def test_poll_that_ends_early_is_told(monkeypatch):
    class Full(Rows):
        def write(self, _table, _row):
            raise OSError("no room")

    assert polled(Full(), monkeypatch, {}) == ["a poll ended early: OSError: no room"]
