"""What a slave of RocketMQ 5 asks of a broker that has no timers."""

import struct

import msgspec

from broker.processor.timers import TimersProcessor
from ledgermq.remoting.protocol.command import RemotingCommand


class Noon:
    def wall_ms(self):
        return 1_790_000_000_000


def test_timers_are_read_up_to_now_and_none_waits():
    answers = TimersProcessor(Noon())
    answer = answers.handle_checkpoint(None, RemotingCommand(code=60))
    assert answer.code == 0
    assert struct.unpack(">7q", answer.body) == (1_790_000_000_000, 0, 0, 0, 0, 0, 0)
    metrics = msgspec.json.decode(answers.handle_metrics(None, RemotingCommand(code=61)).body)
    assert metrics == {"dataVersion": {"counter": 0, "timestamp": 0}, "timingCount": {}}
    modes = msgspec.json.decode(answers.handle_modes(None, RemotingCommand(code=402)).body)
    assert modes == {"messageRequestModeMap": {}}
