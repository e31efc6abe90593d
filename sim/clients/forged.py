"""What an attacker says in another's name: to replicas as one of them, to name servers as a broker.

Pure. The frames are well made, so that only the contents are wrong: names, terms, entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from dledger.codec.entry import encode_span
from dledger.codec.peer import PeerCodec
from dledger.codec.snapshot import encode_snapshot
from dledger.core.configuration import ConfigEntry, Configuration
from dledger.core.messages import (
    Append,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    Message,
    TimeoutNow,
    VoteRequest,
)
from dledger.core.model import NodeId, SnapshotId
from ledgermq.remoting.protocol.codes import RequestCode

if TYPE_CHECKING:
    from sim.rng import SplitRng

TERMS: Final = (1, 2, 3, 1_000, (1 << 62) + 1, (1 << 63) - 1)
INDEXES: Final = (-1, 0, 5, 1_000, (1 << 62), (1 << 63) - 1)
HELLOS: Final = ("10.9.9.9:40911", "nowhere", ":1", "a" * 300)
FAR_TERM: Final = 1 << 60
EMPTY: Final = ConfigEntry(0, 1, Configuration({NodeId("n0"): "10.9.9.9:40911"}))


def forged_peer_frames(rng: SplitRng, group: str, names: tuple[str, ...]) -> list[bytes]:
    """Return a hello and some messages, in the name of a member or of nobody."""
    sender = NodeId(rng.choice((*names, "n9", "x1")))
    codec = PeerCodec(rng.weighted((group, "other"), (0.9, 0.1)), sender, ())
    receiver = NodeId(rng.choice(names))
    frames = [
        codec.encode_hello(receiver, rng.choice(("10.9.9.9:40911", "nowhere", ":1", "a" * 300)))
    ]
    for _ in range(rng.randint(1, 4)):
        message = _message(rng, sender, receiver)
        frames.append(b"".join(bytes(part) for part in codec.encode(message)))
    return frames


def _message(rng: SplitRng, sender: NodeId, receiver: NodeId) -> Message:
    """Return what only a leader or a candidate may say."""
    term, index = rng.choice(TERMS), rng.choice(INDEXES)
    match rng.randint(0, 5):
        case 0:
            return HeartbeatReply(sender, receiver, term, 1)
        case 1:
            return Heartbeat(sender, receiver, term, index, 1)
        case 2:
            return VoteRequest(sender, receiver, term, index, term, rng.chance(0.5))
        case 3:
            return TimeoutNow(sender, receiver, term, index)
        case 4:
            last = max(index, 9)
            data = bytes(encode_snapshot((last, term, 4096), last, EMPTY, b"{}"))
            number = SnapshotId(last, term, len(data), crc32(data[12:]))
            return InstallSnapshot(sender, receiver, term, number, 0, data)
        case _:
            first = max(0, index) % 2_000
            span = encode_span(first, term, 4096, [b"forged"])
            return Append(sender, receiver, term, first - 1, term, index, span)


def forged_registration(
    rng: SplitRng, group: str, address: str
) -> tuple[int, dict[str, str], bytes]:
    """Return code, fields and body of what a name server is told of a broker."""
    name = rng.weighted((group, "odd", "b" * 300), (0.4, 0.4, 0.2))
    fields = {
        "brokerName": name,
        "brokerAddr": rng.choice((address, "", "not an address", "10.9.9.9:1")),
        "clusterName": rng.choice(("DefaultCluster", "c" * 300)),
        "brokerId": rng.choice(("0", "1", str(1 << 70), "-1", "x")),
        "haServerAddr": address,
        "raftTerm": rng.choice(("-1", "1", str(FAR_TERM), str(1 << 70))),
        "compressed": "false",
        "bodyCrc32": "0",
    }
    topics = b",".join(
        b'"odd-%d":{"topicName":"odd-%d","perm":6,"readQueueNums":4,"writeQueueNums":4}' % (at, at)
        for at in range(rng.choice((0, 3, 500)))
    )
    body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{%s}}}' % topics
    code = RequestCode.UNREGISTER_BROKER if rng.chance(0.2) else RequestCode.REGISTER_BROKER
    return code, fields, body
