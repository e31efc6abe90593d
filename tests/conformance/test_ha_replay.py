"""The recorded HA stream of RocketMQ 4.9.7: our two sides say the same bytes about the same log."""

from __future__ import annotations

import json

from store.ha.assembly import Assembly
from store.ha.codec import ReportDecoder, TransferDecoder, encode_header, encode_report
from store.plain.record import inspect
from store.plain.writer import NOTHING, Extent
from tests.fixtures import read

SEGMENT = 256 * 1024
BATCH = 32 * 1024


def said(who: str) -> list[bytes]:
    rows = map(json.loads, read("wire/master_slave_ha.jsonl").splitlines())
    return [bytes.fromhex(row["hex"]) for row in rows if row["to"] == "ha" and row["from"] == who]


def transfers() -> list[tuple[int, bytes]]:
    """Return the transfers of the recorded master, put together again."""
    decoder, found = TransferDecoder(), []
    for chunk in said("server"):
        for position, data in decoder.feed(chunk):
            found.append((position, bytes(data)))
    return found


def test_the_recorded_log_comes_out_whole() -> None:
    first = transfers()[0][0]
    assert first == 0xC0000  # the slave had nothing: the last file of the master
    assembly = Assembly(SEGMENT, Extent(first, NOTHING, first))
    data, extent = bytearray(), None
    for position, piece in transfers():
        for run in assembly.add(position, piece) if piece else ():
            data += run.data
            extent = run.extent
    assert extent is not None
    assert extent.position == assembly.position == first + len(data)
    # The slave of the recording, too, had reported just that in the end.
    assert said("client")[-1] == encode_report(extent.position)
    view, at, records = memoryview(data), 0, 0
    while at < len(view):
        size = inspect(view, at, first + at)
        assert size > 0
        at, records = at + size, records + 1
    assert records > 100


def test_the_reports_of_the_recorded_slave_are_those_of_what_it_got() -> None:
    decoder = ReportDecoder()
    reports = [decoder.feed(report) for report in said("client")]
    ends = {position + len(piece) for position, piece in transfers()}
    assert reports[0] == 0
    assert set(reports[1:]) <= ends
    assert reports == sorted(reports, key=lambda report: report or 0)
    for report in reports:
        assert encode_report(report or 0) in said("client")


def test_what_our_master_would_send_of_that_log_is_what_was_recorded() -> None:
    stream = b"".join(said("server"))
    pieces = transfers()
    log = b"".join(piece for _, piece in pieces)
    first, built, at = pieces[0][0], b"", 0
    position, sizes = 0, []
    decoder_at = 0
    while decoder_at < len(stream):  # sizes as the recorded master chose them
        position = int.from_bytes(stream[decoder_at : decoder_at + 8])
        size = int.from_bytes(stream[decoder_at + 8 : decoder_at + 12])
        assert (position, size <= BATCH) == (first + at, True)
        sizes.append(size)
        built += encode_header(first + at, size) + log[at : at + size]
        at += size
        decoder_at += 12 + size
    assert built == stream
    assert sizes.count(BATCH) >= 7
    assert sizes.count(0) >= 3  # heartbeats
