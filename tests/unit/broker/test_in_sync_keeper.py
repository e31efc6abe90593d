"""What a master makes of the controllers' answers: what is granted, refused, and not known."""

from __future__ import annotations

import asyncio

import pytest

from broker.modes.assignment import AsMaster
from broker.switch.controllers import Answer, Controllers, Unanswered, View, number_of
from broker.switch.in_sync_keeper import UNCLEAR_MS, InSyncKeeper
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.ha.switch.in_sync import CLOSE_FOR_MS, HOLD_MS, InSync
from tests.unit.broker.fakes import FakeClock

ADDRESS = "127.0.0.1:1"


class Master:
    committed = 0
    dropped = 0
    looked = 0

    def drop_outsiders(self) -> None:
        self.dropped += 1

    def look_again(self) -> None:
        self.looked += 1


def view(members, set_epoch):
    return View(1, 7, "h:1", "h:2", frozenset(members), set_epoch)


class Bench:
    """A master of epoch 7 with 2 about to be let in, whose request ends as it is told."""

    def __init__(self, answer):
        self.clock = FakeClock()
        self.in_sync = InSync(1, 15_000)
        self.in_sync.on_decided((1,), 1)
        self.in_sync.on_connected(2, 1_000)
        self.in_sync.on_confirmed(2, 500, 1_000, 500)
        role = AsMaster(own_id=1, epoch=7, in_sync=self.in_sync)
        self.master = Master()
        self.keeper = InSyncKeeper(role, self, self.clock, self.master)
        self.answer = answer

    async def ask(self, *_):
        found = self.answer(self)
        if isinstance(found, Exception):
            raise found
        return found

    def step(self):
        return asyncio.run(self.keeper.step())


def code(number):
    return lambda _: Answer(number, "", None, {})


def is_waited_for(answer):
    """Return whether 2 counts after a request that ended so, and whether that is unclear."""
    bench = Bench(answer)
    assert not bench.step()
    return bench.in_sync.limit(900) == 500, bench.in_sync.is_unclear


def test_what_surely_was_refused_is_forgotten():
    assert is_waited_for(code(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE)) == (False, False)
    assert is_waited_for(lambda _: Unanswered("", is_certain=True)) == (False, False)


@pytest.mark.parametrize(
    "answer",
    [code(ResponseCode.SYSTEM_ERROR), code(99), lambda _: Unanswered("", is_certain=False)],
    ids=["error", "an unknown code", "silence"],
)
def test_what_nobody_knows_the_end_of_may_be_granted_still(answer):
    assert is_waited_for(answer) == (True, True)


def test_an_answer_taken_for_a_refusal_is_found():
    with planted(BY_TESTS["switch-any-code-is-a-refusal"]):
        assert is_waited_for(code(ResponseCode.SYSTEM_ERROR)) == (False, False)


def test_a_master_that_learned_the_decision_otherwise_is_not_stuck():
    def late(bench):
        bench.keeper.on_view(view((1, 2), 2))
        return Unanswered("time is over", is_certain=False)

    bench = Bench(late)
    bench.step()
    bench.clock.now_ms += 2 * UNCLEAR_MS
    assert bench.in_sync.members == {1, 2}
    assert not bench.keeper.is_stuck


def test_what_waits_for_a_slave_in_vain_is_looked_at_again():
    bench = Bench(code(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE))
    bench.step()
    assert (bench.in_sync.limit(900), bench.master.looked) == (900, 1)
    bench = Bench(None)
    bench.master.committed = 900
    while not bench.master.looked:  # 2 had all that there was a moment ago, and then hangs
        bench.clock.now_ms += 100
        if not bench.in_sync.is_holding:
            bench.in_sync.on_confirmed(2, 800, bench.clock.now_ms, 800)
        assert not bench.step()
        assert bench.clock.now_ms < 10_000
    assert (bench.in_sync.limit(900), bench.master.looked) == (900, 1)
    assert bench.clock.now_ms > CLOSE_FOR_MS + HOLD_MS


def test_slaves_confirm_anew_after_a_change_that_the_master_has_not_asked_for():
    def granted(bench):
        return Answer(ResponseCode.SUCCESS, "", view(bench.in_sync.asked, 2), {})

    bench = Bench(granted)
    bench.step()
    assert (bench.in_sync.members, bench.master.dropped) == ({1, 2}, 0)
    bench.keeper.on_view(view((1,), 3))  # 2 has come back without the end of its log
    assert bench.master.dropped == 1
    bench.keeper.on_view(view((1,), 3))
    assert bench.master.dropped == 1
    bench.keeper.on_view(view((1,), 4))  # once more; it was not let in meanwhile
    assert bench.master.dropped == 2
    with planted(BY_TESTS["switch-old-connections-count"]):
        bench.keeper.on_view(view((1,), 5))
        assert bench.master.dropped == 2


def dropped_by_a_view(set_epoch):
    """Return how often slaves had to come again after 2 was let in, as told with that epoch."""
    bench = Bench(lambda bench: Answer(0, "", view(bench.in_sync.asked, set_epoch), {}))
    bench.step()
    assert bench.in_sync.members == {1, 2}
    return bench.master.dropped


def test_slaves_confirm_anew_after_a_change_heard_of_together_with_the_one_asked_for():
    assert dropped_by_a_view(2) == 0
    assert dropped_by_a_view(3) == 1  # meanwhile another one has come back without its end
    with planted(BY_TESTS["switch-a-change-behind-the-own-one-passed-over"]):
        assert dropped_by_a_view(3) == 0


def test_one_that_hears_nothing_is_stuck_after_a_while():
    bench = Bench(lambda _: Unanswered("", is_certain=False))
    bench.step()
    assert not bench.keeper.is_stuck
    bench.clock.now_ms += UNCLEAR_MS
    assert bench.keeper.is_stuck


class Client:
    """Answers every request alike."""

    def __init__(self, code=0, body=b"", **fields):
        self.code, self.body, self.fields = code, body, fields
        self.asked = []

    async def request(self, address, command, timeout_ms):
        self.asked.append((address, command.code, timeout_ms))
        if command.code == RequestCode.CONTROLLER_GET_METADATA_INFO:
            fields = {"controllerLeaderAddress": "127.0.0.1:2", "isLeader": "false"}
            if address != ADDRESS:
                fields["isLeader"] = "true"
            return RemotingCommand(0, ext_fields=fields)
        return RemotingCommand(self.code, ext_fields=self.fields, body=self.body)


def controllers(client):
    return Controllers([ADDRESS], client, {}, lambda command, _address: command)


def answer_of(client):
    return asyncio.run(controllers(client).ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, {}))


FIELDS = {"masterBrokerId": "1", "masterEpoch": "7", "masterAddress": "h:1"}
SET = b'{"syncStateSet":[1,2],"syncStateSetEpoch":3}'


def test_a_view_is_read():
    assert answer_of(Client(body=SET, **FIELDS)).view == View(1, 7, "h:1", "", frozenset({1, 2}), 3)


@pytest.mark.parametrize(
    ("changed", "body"),
    [
        ({"masterEpoch": str(2**31)}, SET),
        ({"masterEpoch": "-1"}, SET),
        ({"masterBrokerId": "²"}, SET),
        ({"masterBrokerId": "9" * 5_000}, SET),
        ({}, b'{"syncStateSet":[1,-2],"syncStateSetEpoch":3}'),
        ({}, b'{"syncStateSet":[1],"syncStateSetEpoch":2147483648}'),
        ({}, b'{"syncStateSet":%a,"syncStateSetEpoch":3}' % list(range(99))),
        ({}, b"[" * 100_000),
        ({}, b"no JSON"),
    ],
)  # fmt: skip
def test_what_cannot_be_true_is_no_view(changed, body):
    assert answer_of(Client(body=body, **(FIELDS | changed))).view is None


@pytest.mark.parametrize("number", [1, 2, ResponseCode.CONTROLLER_NOT_LEADER])
def test_an_answer_without_a_decision_is_none(number):
    with pytest.raises(Unanswered) as caught:
        answer_of(Client(code=number, body=SET, **FIELDS))
    assert not caught.value.is_certain


@pytest.mark.parametrize(
    "text", ["", "²", "-1", "2147483648", "9" * 5_000, "1 ", "0" * 11 + "9" * 30]
)
def test_no_id_is_made_of_what_is_none(text):
    with pytest.raises(ValueError, match="neither"):
        number_of(text)


def test_a_leader_that_only_another_controller_names_hears_of_this_broker():
    client = Client(**FIELDS)
    asked = controllers(client)

    async def main():
        await asked.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, {})
        client.asked.clear()
        await asked.beat({}, 300)

    asyncio.run(main())
    beat = int(RequestCode.BROKER_HEARTBEAT)
    assert client.asked == [(ADDRESS, beat, 300), ("127.0.0.1:2", beat, 300)]


def test_another_set_is_looked_at_and_the_same_one_is_not():
    bench = Bench(code(ResponseCode.SUCCESS))
    bench.keeper.on_view(view((1, 2), 2))
    bench.keeper.on_view(view((1, 2), 3))
    assert bench.master.looked == 1
    with planted(BY_TESTS["another-set-and-nobody-looks"]):
        bench.keeper.on_view(view((1,), 4))
    assert bench.master.looked == 1
