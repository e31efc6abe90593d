"""JSON nested as deep as it can be, in the files of a controller, is refused by its name."""

import struct
import zlib

import msgspec
import pytest

from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from namesrv.controller import commands, journal, processor, snapshot, state
from namesrv.kv_config import KvConfig

DEEP = b"[" * 100_000 + b"]" * 100_000


def test_a_vote(tmp_path):
    path = tmp_path / "vote"
    path.write_bytes(b'{"x":' + DEEP + b"}")
    with pytest.raises(FatalError, match=f"{path}: no vote"):
        journal._read_vote(RealDisk(), str(path))


def test_a_state():
    with pytest.raises(state.BadState):
        state.decode_state(DEEP)


def test_a_command():
    with pytest.raises(commands.BadCommand):
        commands.decode_command(b"[" * 2_000 + b"]" * 2_000)


def test_a_snapshot(tmp_path):
    for body in (b"\x91" * 100_000, msgspec.msgpack.encode([[0, 0], [1, 0], DEEP])):
        head = struct.pack(snapshot._HEAD.format, snapshot._MAGIC, snapshot._VERSION,
                           zlib.crc32(body))  # fmt: skip
        (tmp_path / "snapshot").write_bytes(head + body)
        with pytest.raises(FatalError, match="no snapshot of a controller"):
            snapshot.read_snapshot(RealDisk(), str(tmp_path / "snapshot"))


def test_a_body_of_a_request():
    assert processor._body(RemotingCommand(1, body=DEEP), list[int]) is None


def test_key_values(tmp_path):
    (tmp_path / "kv").write_bytes(b'{"configTable":' + DEEP + b"}")
    with pytest.raises(FatalError, match="no key-value file"):
        KvConfig(RealDisk(), str(tmp_path / "kv")).load()
