"""A message as a row."""

import json

from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.remoting.protocol.message_row import message_row

MESSAGE = MessageExt(
    "T", 3, 1, 0, 7, 1_000, 5, pack_host("::1", 80), 6, pack_host("10.0.0.1", 10_911), 0, 0,
    b"\xff", b"UNIQ_KEY\x01U1\x02TAGS\x01a",
)  # fmt: skip


def test_row_has_the_names_of_a_java_client_and_is_json():
    row = message_row(MESSAGE)
    assert json.loads(json.dumps(row)) == row
    assert (row["msgId"], row["bodyBase64"]) == ("U1", "/w==")
    assert (row["bornHost"], row["storeHost"]) == ("[::1]:80", "/10.0.0.1:10911")
    assert list(row["properties"]) == ["TAGS", "UNIQ_KEY"]
