"""What is kept twice is the same both times; where a bug is planted in the one, it is told."""

import json
import random
from types import SimpleNamespace

import pytest

from broker.state.consumer_offset import ConsumerOffsetTable
from broker.state.queue_lock import LockChange, QueueLockTable
from dledger.core.log import RaftLog
from ledgermq.client.config import ConsumeOptions
from ledgermq.client.message import MessageQueue
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.remoting.protocol.bodies import QueueKey
from mutants.patches import ALL, BY_TESTS
from mutants.planting import planted
from sim.oracles.base import Violation
from sim.oracles.kept import all_kept_twice
from store.ha.gate import Gate
from store.ha.switch.in_sync import InSync

GROUP, TOPIC = "readers", "orders"
STEPS = 400


def offsets(chance):
    """A broker's offsets: taken, put, refused, applied, and forgotten."""
    table, log = ConsumerOffsetTable(), []
    for _ in range(STEPS):
        queue, offset = chance.randrange(3), chance.randrange(4)
        table.query(GROUP, TOPIC, queue)
        match chance.randrange(8):
            case 0 | 1 | 2:
                table.commit(GROUP, TOPIC, queue, offset)
            case 3:
                log += table.take_proposals(chance.choice([None, 1]))
            case 4 if log:
                table.give_back(log.pop(), may_come=False)
            case 5 if log:
                table.apply(log.pop(0))
            case 6:
                table.withdraw(GROUP)
            case 7:
                key = f"{TOPIC}@{GROUP}"
                table.apply_forget(json.dumps({"offsets": {key: [queue]}}).encode())
                if chance.random() < 0.1:
                    table.drop_pending()
                    log.clear()


def change(client, queue):
    """A request of a client for one queue."""
    return LockChange(GROUP, client, [QueueKey("", queue, TOPIC)])


def locks(chance):
    """A broker's locks: granted, given back, run out, and left."""
    now = [0]
    table = QueueLockTable(lambda: now[0], 500)
    for _ in range(STEPS):
        now[0] += chance.randrange(100)
        one, client = change(chance.choice("ab"), chance.randrange(2)), chance.choice("ab")
        payload = json.dumps(
            {
                "group": GROUP,
                "clientId": one.client_id,
                "queues": [{"brokerName": "", "topic": TOPIC, "queueId": one.queues[0].queue_id}],
            }
        ).encode()
        table.releasable(one)
        match chance.randrange(7):
            case 0 | 1:
                if table.grantable(one, now[0]):
                    table.propose(one)
                    table.apply_lock(payload, now[0])
                    table.settle(one)
            case 2:
                table.apply_unlock(payload)
            case 3:
                table.expire(now[0])
            case 4:
                table.leave(GROUP, client, now[0])
            case 5:
                table.come_back(GROUP, client)
            case 6:
                table.owner(GROUP, TOPIC, 0, now[0])


def gates(chance):
    """A synchronous master whose slaves come, lag and go."""
    gate, now, end = Gate(300, 40), 0, 0
    for _ in range(STEPS):
        now, end = now + chance.randrange(120), end + chance.randrange(30)
        if chance.random() < 0.5:
            gate.on_slaves([max(0, end - chance.randrange(60)) for _ in range(chance.randrange(3))])
        gate.pass_time(now, end)
        gate.limit(max(0, end - chance.randrange(10)), end)
        gate.keeps_up((gate.best or 0) + 40)


def decide(one, chance, now, number):
    """Answer what a master has asked for: granted, refused, or not at all; return the number."""
    if chance.random() < 0.4:
        one.on_refused(now)
    elif chance.random() < 0.2:
        one.on_unanswered()
    else:
        number += 1
        one.on_decided(one.asked, number)
    return number


def sets(chance):
    """A master of an in-sync set: slaves lag, go, come again, and are let in, or refused."""
    one, now, end, number = InSync(1, 2_500), 0, 100, 1
    one.on_decided({1, 2}, number)
    for _ in range(STEPS * 4):
        now, end = now + chance.randrange(60), end + chance.randrange(3)
        slave, what = chance.choice([2, 3]), chance.randrange(80)
        if not one.follows(slave):
            one.on_connected(slave, now)
        elif not what:
            one.on_gone(slave, now)
        elif what < 50:
            one.on_confirmed(slave, end - chance.choice([0, 0, 1, 2, 50]), now, end)
        one.limit(end)
        if one.asked is not None and what > 60:
            number = decide(one, chance, now, number)
        elif what > 50 and (wanted := one.wanted(end - 1, now)) is not None:
            one.ask(wanted)


def queues(chance):
    """A queue of a consumer: pulled, finished in any order, and set back."""
    one, offset, open_ = ProcessQueue(MessageQueue(TOPIC, "group", 0), 0), 0, []
    options = ConsumeOptions(max_cached_bytes=900, max_offset_span=12)
    for _ in range(STEPS):
        match chance.randrange(5):
            case 0 | 1:
                sizes = [chance.randrange(200) for _ in range(chance.randrange(4))]
                came = [
                    SimpleNamespace(queue_offset=offset + at, body=b"x" * size)
                    for at, size in enumerate(sizes)
                ]
                offset += len(came)
                open_ += came
                one.put(came, offset)
            case 2 if open_:
                one.finish([open_.pop(chance.randrange(len(open_)))])
            case 3:
                one.maybe_commit_offset()
                one.maybe_flow_control(options)
            case 4 if chance.random() < 0.1:
                offset = chance.randrange(offset + 1)
                one.reset(offset)


KINDS = {one.__name__: one for one in (offsets, locks, gates, sets, queues)}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_both_keep_the_same_whatever_happens(kind):
    with all_kept_twice() as twice:
        for seed in range(10):
            KINDS[kind](random.Random(seed))
    twice.raise_first()
    assert twice.calls > STEPS


@pytest.mark.parametrize(
    ("bug", "kind"),
    [
        (ALL["late-release-frees-another"], "locks"),
        (ALL["left-though-it-is-back"], "locks"),
        (BY_TESTS["given-back-without-its-turn"], "offsets"),
        (BY_TESTS["taken-as-applied-and-put-again"], "offsets"),
        (BY_TESTS["slave-just-far-enough-counts"], "gates"),
        (BY_TESTS["late-by-the-first-of-them"], "gates"),
        (BY_TESTS["caught-up-when-it-says-so"], "sets"),
        (BY_TESTS["close-again-counts-from-before"], "sets"),
        (BY_TESTS["span-of-what-is-done-with"], "queues"),
        (BY_TESTS["bytes-of-a-reset-stay"], "queues"),
        (ALL["finished-out-of-order"], "queues"),
    ],
    ids=lambda one: getattr(one, "name", one),
)
def test_one_that_goes_by_another_rule_is_told(bug, kind):
    with planted(bug), all_kept_twice() as twice:
        for seed in range(10):
            KINDS[kind](random.Random(seed))
    with pytest.raises(Violation, match="kept otherwise"):
        twice.raise_first()


def test_the_classes_are_theirs_again_once_a_run_has_ended():
    plain = {kind: kind.__init__ for kind in (RaftLog, Gate, InSync)}
    with all_kept_twice():
        assert all(kind.__init__ is not former for kind, former in plain.items())
    assert all(kind.__init__ is former for kind, former in plain.items())
    assert type(Gate(1, 1)) is Gate


class View:
    """A log on disk that has nothing, and then stands behind a snapshot."""

    first_index, last_index, base_term = 0, -1, 0

    def term_runs(self):
        return []

    def position_after(self, index):
        return 0


def test_a_log_that_begins_anew_is_judged_by_what_it_is_then_also_through_what_others_hold():
    view = View()
    with all_kept_twice() as twice:
        log = RaftLog(view, -1)
        held = log.committed_term_at
        log.append(SimpleNamespace(first_index=0, last_index=3, term=2))
        view.first_index, view.last_index, view.base_term = 10, 9, 4
        log.restart()
        log.append(SimpleNamespace(first_index=10, last_index=11, term=5))
        assert (held(9), log.term_at(11)) == (4, 5)
    twice.raise_first()
