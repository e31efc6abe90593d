"""Frames of the fuzzer's own making: what a header and a prefix look like, and how they go wrong.

Pure. Source: docs/protocol.md, the frame and its two header forms.
"""

import json
import random
import struct
from collections.abc import Sequence
from typing import NamedTuple

from chaos.fuzz.requests import Request
from chaos.fuzz.values import body, value

ODD_P = 0.6
"""How many requests have something odd about them."""
ONEWAY_P = 0.1
BINARY_P = 0.3
GARBAGE_P = 0.002
"""How many frames are no frames; each costs the connection."""


class Sent(NamedTuple):
    """A frame and what it asks for."""

    data: bytes
    code: int
    fields: dict[str, str]
    body: bytes
    is_oneway: bool
    is_spoilt: bool
    """No server can be expected to go on with the connection."""


def draw(
    rng: random.Random, requests: Sequence[Request], weights: Sequence[int], opaque: int
) -> Sent:
    """Return a request frame."""
    request = rng.choices(requests, weights)[0]
    odd = rng.random() < ODD_P
    odd_fields = (
        set(rng.sample(sorted(request.fields), min(len(request.fields), 1))) if odd else set()
    )
    if odd and rng.random() < 0.2:
        odd_fields = {name for name in request.fields if rng.random() < 0.4}
    fields = {
        name: value(rng, kind, odd=name in odd_fields) for name, kind in request.fields.items()
    }
    if odd and fields and rng.random() < 0.15:
        del fields[rng.choice(sorted(fields))]
    if odd and rng.random() < 0.05:
        fields[rng.choice(("x", "", "code", "y" * 300))] = "z" * rng.choice((1, 1_000, 60_000))
    content = body(rng, request.body, odd=odd and rng.random() < 0.5)
    is_oneway = rng.random() < ONEWAY_P
    make = binary if rng.random() < BINARY_P else json_frame
    data = make(request.code, 2 if is_oneway else 0, opaque, fields, content)
    is_spoilt = rng.random() < GARBAGE_P
    if is_spoilt:
        data = spoil(rng, data)
    return Sent(data, request.code, fields, content, is_oneway, is_spoilt)


def json_frame(code: int, flag: int, opaque: int, fields: dict[str, str], content: bytes) -> bytes:
    """Return a frame with a JSON header, as Java writes it."""
    head = {"code": code, "extFields": fields, "flag": flag, "language": "JAVA", "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON", "version": 407}  # fmt: skip
    return _frame(0, json.dumps(head, separators=(",", ":")).encode(), content)


def binary(code: int, flag: int, opaque: int, fields: dict[str, str], content: bytes) -> bytes:
    """Return a frame with a binary header."""
    packed = b"".join(
        struct.pack(">H", len(name)) + name + struct.pack(">I", len(text)) + text
        for name, text in (
            (key.encode("utf-8", "replace")[:65_535], one.encode("utf-8", "replace"))
            for key, one in fields.items()
        )
    )
    head = struct.pack(">HBHii", code & 0xFFFF, 0, 407, opaque, flag)
    return _frame(1, head + struct.pack(">ii", 0, len(packed)) + packed, content)


def spoil(rng: random.Random, data: bytes) -> bytes:
    """Return something that begins like a frame and is none."""
    match rng.randrange(6):
        case 0:
            return data[: rng.randrange(len(data))]
        case 1:
            flipped = bytearray(data)
            for _ in range(rng.choice((1, 4, 40))):
                flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
            return bytes(flipped)
        case 2:
            return struct.pack(">iI", rng.choice((-1, 0, 3, 2**31 - 1, 16_777_217)), 0) + data[8:]
        case 3:
            return (
                data[:4]
                + struct.pack(">I", rng.choice((0xFFFFFFFF, 0x02000000, 0xFFFFFF)))
                + data[8:]
            )
        case 4:
            return rng.randbytes(rng.choice((1, 8, 100, 5_000)))
        case _:
            return b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def _frame(serialize_type: int, header: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">iI", 4 + len(header) + len(content), serialize_type << 24 | len(header))
        + header
        + content
    )
