"""Rules about frames: this message of that link is dropped, doubled, held back, spoilt or replayed.

TCP neither loses nor reorders; what stands for a network that does is a proxy in the middle which
knows where frames end. Rules see whole writes, and our programs write whole frames; bytes that are
no frame pass as they are.
"""

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ledgermq.remoting.protocol.command import FLAG_RESPONSE, decode_head
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.frame import PREFIX_BYTES, Frame
from sim.rules import Action

if TYPE_CHECKING:
    from sim.link import Link

_PREFIX: Final = struct.Struct(">iI")
HISTORY_FRAMES: Final = 64
"""Frames of a link that a replay may choose from."""
NS_PER_MS: Final = 1_000_000


def apply_rules(
    link: "Link",
    data: bytes,
    send: Callable[[bytes], None],
    send_later: Callable[[int, bytes], None],
) -> None:
    """Send the frames in ``data`` as the rules of the link have it."""
    passing: list[bytes] = []
    for frame in split_frames(data):
        _apply(link, frame, passing, send_later)
    if passing:
        send(b"".join(passing))


def _apply(
    link: "Link", frame: bytes, passing: list[bytes], send_later: Callable[[int, bytes], None]
) -> None:
    head = head_of(frame)
    rng = link.rng
    for rule in link.rules:
        if head is None or not rule.matches(head[0], frame, is_response=head[1]):
            continue
        if rule.probability < 1.0 and not rng.chance(rule.probability):
            continue
        rule.applied += 1
        match rule.action:
            case Action.DROP:
                return
            case Action.DELAY:
                low, high = rule.delay_ms
                send_later(rng.randint(low * NS_PER_MS, high * NS_PER_MS), frame)
                return
            case Action.DUPLICATE:
                passing.append(frame)
            case Action.REPLAY:
                link.frames.append(frame)
                del link.frames[:-HISTORY_FRAMES]
                passing.append(rng.choice(link.frames))
            case Action.CORRUPT:
                at = rng.randint(4, len(frame) - 1)
                spoilt = frame[at] ^ rng.randint(1, 255)
                frame = frame[:at] + bytes((spoilt,)) + frame[at + 1 :]
    passing.append(frame)


def split_frames(data: bytes) -> list[bytes]:
    """Return the frames side by side in ``data``; what is none is one piece at the end."""
    pieces = []
    start = 0
    while start < len(data):
        end = len(data)
        if end - start >= PREFIX_BYTES:
            total = int.from_bytes(data[start : start + 4], "big", signed=True)
            if 4 <= total <= end - start - 4:
                end = start + 4 + total
        pieces.append(data[start:end])
        start = end
    return pieces


def head_of(frame: bytes) -> tuple[int, bool] | None:
    """Return code and whether it is a response, None for what is no frame."""
    if len(frame) < PREFIX_BYTES:
        return None
    total, word = _PREFIX.unpack_from(frame)
    header_end = PREFIX_BYTES + (word & 0xFFFFFF)
    if total + 4 != len(frame) or header_end > len(frame):
        return None
    try:
        head = decode_head(Frame(word >> 24, frame[PREFIX_BYTES:header_end], b""))
    except RemoteProtocolError:
        return None
    return head.code, bool(head.flag & FLAG_RESPONSE)
