"""The HA stream without connections: pieces, records, what counts when, what is refused."""

from __future__ import annotations

import random
import struct

import pytest

from sim.disk import SimDisk
from sim.rng import SplitRng
from store.ha.assembly import Assembly
from store.ha.codec import (
    BadStream,
    ReportDecoder,
    TransferDecoder,
    encode_header,
    encode_report,
)
from store.ha.gate import Gate, Lack
from store.limits import HA_TRANSFER_BYTES_MAX
from store.plain.writer import NOTHING, Extent
from tests.unit.store.plain.records import SEGMENT, Log, record

EMPTY = Extent(0, NOTHING, 0)


def log_bytes(files: int = 3) -> tuple[bytes, Extent]:
    """Return a log as its files have it, up to its last record."""
    log = Log(SimDisk(SplitRng(1)))
    number = 0
    while log.next_position < files * SEGMENT + 300:
        log.put(body=b"%03d" % number * (7 + number % 40))
        log.flush()
        number += 1
    return log.files.read(0, log.end_position), log.written


def assembled(chunks: list[bytes], begin: Extent = EMPTY) -> tuple[bytearray, Extent, Assembly]:
    assembly = Assembly(SEGMENT, begin)
    written, extent = bytearray(), begin
    for chunk in chunks:
        for run in assembly.add(assembly.position, chunk):
            assert run.position == extent.position
            assert run.position // SEGMENT == (run.position + len(run.data) - 1) // SEGMENT
            written += bytes(run.position - begin.position - len(written)) + run.data
            extent = run.extent
    return written, extent, assembly


def cut(data: bytes, rng: random.Random, most: int) -> list[bytes]:
    chunks = []
    while data:
        size = rng.randint(1, most)
        chunks.append(data[:size])
        data = data[size:]
    return chunks


@pytest.mark.parametrize("most", [1, 7, 300, 5_000, 100_000])
def test_a_log_comes_out_as_it_went_in_however_it_is_cut(most: int) -> None:
    data, extent = log_bytes()
    written, reached, assembly = assembled(cut(data, random.Random(most), most))
    assert bytes(written) == data
    assert reached == extent
    assert assembly.position == len(data)


def test_a_break_at_any_byte_leaves_whole_records_to_go_on_from() -> None:
    data, extent = log_bytes(files=1)
    for broken_at in range(0, len(data), 13):
        written, reached, _ = assembled([data[:broken_at]])
        assert data.startswith(written)
        assert reached.last_end <= broken_at
        rest, end, _ = assembled([data[reached.position :]], reached)
        assert data.endswith(rest[-200:])
        assert end == extent


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\xff" * 200, "states -1 bytes"),
        (struct.pack(">iI", 50_000, 0xDAA320A7), "states 50000 bytes"),
        (struct.pack(">iI", 17, 0xCBD43194), "mappedFileSizeCommitLog"),
        (struct.pack(">iI", 200, 0x11223344) + bytes(192), "no magic"),
        (record(0, body=b"x" * 50).replace(b"xxxx", b"xyxx", 1), "CRC"),
        (record(64, body=b"x" * 50), "another physical offset"),
        (record(0)[:12] + b"\xff" * 4 + record(0)[16:], "a queue below 0"),
        (record(0)[:20] + b"\xff" * 8 + record(0)[28:], "a queue below 0"),
    ],
)
def test_what_is_no_record_is_refused(sent: bytes, reason: str) -> None:
    with pytest.raises(BadStream, match=reason):
        Assembly(SEGMENT, EMPTY).add(0, sent)


def test_what_is_not_the_very_next_is_refused() -> None:
    data = record(0)
    for position in (-1, 1, len(data)):
        with pytest.raises(BadStream, match=f"it sends position {position}"):
            Assembly(SEGMENT, EMPTY).add(position, data)


def test_a_lie_about_a_size_holds_no_memory() -> None:
    assembly = Assembly(1 << 30, EMPTY)
    with pytest.raises(BadStream, match="states"):
        assembly.add(0, struct.pack(">iI", 1 << 29, 0xDAA320A7))


def test_transfers_come_out_however_they_are_cut() -> None:
    stream = b"".join((
        encode_header(100, 5), b"abcde", encode_header(105, 0), encode_header(105, 3), b"fgh",
    ))  # fmt: skip
    for most in (1, 2, 13, 100):
        decoder, found, beats = TransferDecoder(), bytearray(), 0
        for chunk in cut(stream, random.Random(most), most):
            for position, data in decoder.feed(chunk):
                assert position == 100 + len(found)
                found += data
                beats += not len(data)
        assert (bytes(found), beats) == (b"abcdefgh", 1)


@pytest.mark.parametrize(
    ("position", "size"), [(-1, 5), (0, -1), (0, HA_TRANSFER_BYTES_MAX + 1), (-(2**63), 0)]
)
def test_a_transfer_that_cannot_be_is_refused(position: int, size: int) -> None:
    with pytest.raises(BadStream, match="no transfer has"):
        list(TransferDecoder().feed(struct.pack(">qi", position, size)))


def test_reports_come_out_however_they_are_cut() -> None:
    stream = b"".join(map(encode_report, (0, 5, 5, 900)))
    for most in (1, 3, 8, 100):
        decoder = ReportDecoder()
        chunks = cut(stream, random.Random(most), most)
        found = [position for chunk in chunks if (position := decoder.feed(chunk)) is not None]
        assert found[-1] == 900
    with pytest.raises(BadStream, match="cannot have"):
        ReportDecoder().feed(encode_report(-1))


def gate() -> Gate:
    return Gate(wait_ms=100, behind_max=1_000)


def test_without_a_slave_everything_counts_and_is_said_to_lack_one() -> None:
    assert gate().limit(500, 500) == (500, Lack.NO_SLAVE)


def test_an_entry_counts_once_both_have_it() -> None:
    one = gate()
    one.on_slaves([200, 300])
    assert one.limit(500, 600) == (300, None)
    one.on_slaves([700, 300])
    assert one.limit(500, 700) == (500, None)  # the own disk is behind


def test_a_slave_that_is_far_behind_does_not_count() -> None:
    one = gate()
    one.on_slaves([200])
    assert one.limit(1_200, 1_200) == (1_200, Lack.NO_SLAVE)
    one.on_slaves([900])
    assert one.limit(1_300, 1_300)[0] == 1_200  # what counted before goes on to count


def test_a_slave_that_has_gone_does_not_count() -> None:
    one = gate()
    one.on_slaves([200])
    one.on_slaves([])
    assert one.limit(300, 300) == (300, Lack.NO_SLAVE)


def test_what_waits_too_long_counts_and_the_rest_waits() -> None:
    one = gate()
    one.on_slaves([0])
    assert not one.pass_time(0, 300)
    assert not one.pass_time(60, 500)
    assert one.limit(500, 500) == (0, None)
    assert one.pass_time(100, 600)
    assert one.limit(600, 600) == (300, Lack.TIMEOUT)
    one.on_slaves([600])
    assert one.limit(600, 600) == (600, None)
    assert not one.pass_time(300, 600)
