"""A message has one unique key, however often and in whose company it is sent.

Consumers tell by it what came twice, and its sender asks for the message by it: it was told that
key. Whoever sends a message again, alone or in another request, sends it under the same.
Source: docs/client.md (unique keys); RocketMQ MessageClientIDSetter.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Findings, Violation, guarded
from sim.oracles.library import SENDS

if TYPE_CHECKING:
    from sim.oracles.wire import Said, Tap

NAME: Final = "A46 a message sent again under another unique key"
_keys: Final = re.compile(rb"KEYS(?:\x01|\\u0001)(\d+)").findall
_unique: Final = re.compile(rb"UNIQ_KEY(?:\x01|\\u0001)([0-9A-F]+)").findall


class SameKey:
    """Listens at the clients' end of their connections to brokers; a `wire.Listener`."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self._known: dict[tuple[str, bytes], bytes] = {}
        """By topic and key of a message: its unique key."""

    @guarded
    def on_request(self, tap: Tap, request: Said) -> None:
        """A client asks a broker."""
        del tap
        if request.code not in SENDS:
            return
        topic = request.text("b") or request.text("topic")
        keys, unique = _keys(request.frame), _unique(request.frame)
        for key, one in zip(keys, unique, strict=True) if len(keys) == len(unique) else ():
            known = self._known.setdefault((topic, key), one)
            if known != one:
                text = f"{int(key)} for {topic} goes as {one.decode()}, and went as"
                raise Violation(NAME, f"{text} {known.decode()}")

    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """What is answered says nothing of it."""

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """Likewise."""
