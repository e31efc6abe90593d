"""Whether a group has an offset, of brokers that can say so and of RocketMQ 4.9, which cannot."""

import asyncio

import pytest

from ledgermq.client import MessageQueue
from ledgermq.client.stored_offset import NO_OFFSET, StoredOffsets, has_offset
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import ResponseError
from ledgermq.remoting.protocol.headers import Claim
from mutants.patches import BY_TESTS
from mutants.planting import planted

QUEUE = MessageQueue("orders", "b", 2)
TABLE = (
    b'{"offsetTable":{"orders@other":{2:9},"orders@g":{0:4,\n\t2:0,12:1},"t@g":{2:0}},'
    b'"dataVersion":{}}'
)


class Broker:
    """Answers 14 with one answer, and 43 with a table or a refusal."""

    def __init__(self, answer, table=None):
        self.answers = {14: answer, 43: table or RemotingCommand(3, remark="unknown")}
        self.asked = []

    async def request(self, addr, command, timeout_ms):
        self.asked.append(command.code)
        return self.answers[command.code]


def offset(text, **more):
    return RemotingCommand(0, ext_fields={"offset": text, **more})


def ask(broker, group="g"):
    return asyncio.run(StoredOffsets(broker, 1_000).ask("addr", group, QUEUE)).offset


def test_what_a_broker_knows_is_believed():
    for answer, wanted in (
        (offset("7"), 7), (offset("0", stored="true"), 0),
        (RemotingCommand(22, remark="none"), NO_OFFSET),
    ):  # fmt: skip
        broker = Broker(answer)
        assert ask(broker) == wanted
        assert broker.asked == [14]


def test_a_zero_of_an_old_broker_is_looked_up_in_its_table():
    old = Broker(offset("0"), RemotingCommand(0, body=TABLE))
    assert ask(old) == 0
    assert ask(old, "stranger") == NO_OFFSET
    assert old.asked == [14, 43] * 2


def test_who_lets_go_of_a_queue_asks_for_no_table():
    old = Broker(offset("0"), RemotingCommand(0, body=TABLE))
    asyncio.run(StoredOffsets(old, 1_000).ask("addr", "g", QUEUE, Claim.NONE))
    assert old.asked == [14]


def test_a_broker_that_shows_no_table_is_believed():
    assert ask(Broker(offset("0"))) == 0


def test_a_refusal_is_raised():
    with pytest.raises(ResponseError):
        ask(Broker(RemotingCommand(1, remark="no")))


@pytest.mark.parametrize(
    ("group", "queue_id", "wanted"),
    [("g", 0, True), ("g", 2, True), ("g", 12, True), ("g", 1, False), ("other", 0, False),
     ("ther", 2, False), ("og", 2, False)],
)  # fmt: skip
def test_a_table_is_searched_for_the_group_and_the_queue(group, queue_id, wanted):
    assert has_offset(TABLE, group, MessageQueue("orders", "b", queue_id)) is wanted


def test_json_with_names_in_quotes_is_read_too():
    table = b'{"offsetTable":{"orders@g":{"2":5}}}'
    assert has_offset(table, "g", QUEUE)
    assert not has_offset(b"", "g", QUEUE)


def test_the_check_fails_where_an_old_brokers_zero_is_believed():
    with planted(BY_TESTS["zero-of-an-old-broker-believed"]):
        assert ask(Broker(offset("0"), RemotingCommand(0, body=TABLE)), "stranger") == 0
