"""An acknowledgement of a broker on its own is compared with its disk when it leaves."""

import pytest

from sim.disk import SimDisk
from sim.oracles.alone_disk import AloneEnd, LogFiles
from sim.oracles.base import Findings
from sim.oracles.wire import Said
from sim.rng import SplitRng
from sim.trace import Trace

SEGMENT = 4096
HEADER = 48
DIRECTORY = "/s/data"
RECORD = (64).to_bytes(4, "big") + bytes(range(1, 61))


def id_of(position):
    return "0A000001" + "00002A9F" + f"{position:016X}"


class Broker:
    """Its log begins with two entries in the second segment."""

    def __init__(self):
        self.findings = Findings()
        self.disk = SimDisk(SplitRng(1), Trace(), host="b0")
        self.disk.make_directories(DIRECTORY)
        self.file = self.disk.open(f"{DIRECTORY}/{SEGMENT:020d}", size=SEGMENT)
        self.end = AloneEnd(self.disk, LogFiles(DIRECTORY, SEGMENT, HEADER), self.findings)

    def write(self, number):
        at = number * (HEADER + len(RECORD))
        self.file.pwrite(at, [b"\1" * HEADER + RECORD])
        return id_of(SEGMENT + at + HEADER)

    def acknowledge(self, *ids, code=0, asked=310):
        answer = Said(code, {"msgId": ",".join(ids)}, b"", 0, b"")
        self.end.on_answer(None, Said(asked, {}, b"", 0, b""), answer)
        return self.findings.first is None


def test_what_is_synced_may_be_acknowledged():
    broker = Broker()
    ids = [broker.write(0), broker.write(1)]
    broker.file.fdatasync()
    assert broker.acknowledge(*ids)


def test_what_is_written_may_not():
    broker = Broker()
    first = broker.write(0)
    broker.file.fdatasync()
    second = broker.write(1)
    assert broker.acknowledge(first)
    assert not broker.acknowledge(first, second)


def test_the_header_of_an_entry_is_a_part_of_it():
    broker = Broker()
    only = broker.write(0)
    broker.file.fdatasync()
    broker.file.pwrite(0, [b"\2"])
    assert not broker.acknowledge(only)


def test_an_id_that_names_no_record_is_no_acknowledgement():
    assert not Broker().acknowledge(id_of(SEGMENT + HEADER))


@pytest.mark.parametrize(("code", "asked"), [(10, 310), (0, 11)])
def test_a_reserve_and_other_answers_promise_nothing(code, asked):
    broker = Broker()
    assert broker.acknowledge(broker.write(0), code=code, asked=asked)
