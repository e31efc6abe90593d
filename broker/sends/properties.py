"""Rewrites the property text of a send into what RocketMQ 4.9 stores.

RocketMQ parses the text into a ``java.util.HashMap``, puts ``CLUSTER``, drops ``WAIT`` and writes
the map in its iteration order; stores and recorded pull bodies show that order, so we reproduce it:
the bucket of a key is ``(hash ^ hash >>> 16) & (capacity - 1)``, the capacity starts at 16 and
doubles at three quarters, and keys of one bucket keep their order of arrival.

The order depends on the *names* only, so it is worked out once per combination of names and kept
as a plan; a message then costs one split, one pick and one join. A producer's messages mostly have
the same names in the order that is stored: the pattern of the last such message is tried first and
costs less still. What is remembered is bounded in bytes: names and values that are long, or many,
are worked out anew each time.

An item without a name or a value is dropped, as Java drops it. One whose value holds 0x01 is
refused: readers of different versions see different values in it. So is one that asks for a time of
delivery. Pure: knows neither sockets nor
the store.
Source: spec/wire.md 3.3, 4.3; RocketMQ SendMessageProcessor, MessageDecoder; java.util.HashMap.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from broker.limits import (
    PLAN_NAMES_MAX,
    PLANS_MAX,
    REMEMBERED_BYTES_MAX,
    SUFFIXES_MAX,
    TAGS_REMEMBERED_MAX,
)
from broker.sends.rules import TIMERS, Refused, check_timer, sent_level
from ledgermq.remoting.protocol.properties import java_string_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_SEPARATOR = b"\x02"
_EQUALS = b"\x01"
_WAIT = b"WAIT\x01"
_CONTENT = bytes(byte for byte in range(256) if byte not in {1, 2})
"""What is deleted from a text to see how its separators follow each other."""


class Rewritten(msgspec.Struct, frozen=True, gc=False):
    """Properties as they are stored, and what the broker must know of them."""

    text: bytes
    tags_code: int
    #: The value of DELAY when that is above zero, else 0. If it is, the text is in no order yet:
    #: `broker.sends.schedule` gives it one.
    delay_level: int
    #: Whether it is half a transaction; its text is in no order then, either.
    transactional: bool


class _Plan(msgspec.Struct):
    """How to pick the stored items out of the received ones, for one combination of names."""

    order: list[int]
    pick: Callable[[list[bytes]], Any]
    single: bool
    tags: int
    delay: int
    transaction: int
    #: Whether a property asks for a time of delivery.
    timer: bool
    generate_unique: bool
    shape: _Shape | None = None
    #: Whether the shape was made, which happens when names come for the second time.
    shaped: bool = False


class _Shape(msgspec.Struct, frozen=True):
    """A pattern of texts whose items are stored as they are, around CLUSTER and without WAIT."""

    match: Callable[[bytes], re.Match[bytes] | None]
    #: Groups of the pattern that are runs of items; CLUSTER goes in at ``cluster_at``.
    runs: tuple[int, ...]
    cluster_at: int
    #: Group of the value of TAGS, -1 without.
    tags: int


def java_map_order(keys: Sequence[str]) -> list[int]:
    """Return the positions of ``keys`` in the iteration order of a ``java.util.HashMap``.

    Keys must be distinct and in order of insertion. Source: java.util.HashMap.
    """
    capacity = 16
    while len(keys) > capacity * 3 // 4:
        capacity *= 2
    mask = capacity - 1
    buckets: list[int] = []
    for key in keys:
        spread = java_string_hash(key) & 0xFFFF_FFFF
        buckets.append((spread ^ (spread >> 16)) & mask)
    return sorted(range(len(keys)), key=buckets.__getitem__)


class PropertyRewriter:
    """Applies the broker's changes to property texts; one per broker.

    Args:
        cluster_name: value of the CLUSTER property.
        unique_id: gives the text of a new UNIQ_KEY, called only for messages that have none.
        now_ms: the wall clock, asked only for messages with a time of delivery; without one, any is
            to come.
    """

    __slots__ = (
        "_cluster",
        "_plans",
        "_recent",
        "_suffixes",
        "_tags_codes",
        "_unique_id",
        "now_ms",
    )

    def __init__(
        self,
        cluster_name: str,
        unique_id: Callable[[], bytes],
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.now_ms = now_ms
        self._cluster = b"CLUSTER\x01" + cluster_name.encode()
        self._unique_id = unique_id
        self._plans: dict[tuple[bytes, ...], _Plan] = {}
        self._recent: _Shape | None = None
        self._tags_codes: dict[bytes, int] = {}
        self._suffixes: dict[bytes, bytes] = {}

    def rewrite(self, text: bytes) -> Rewritten:
        """Return the properties of a single message as they are stored; the text is UTF-8.

        Errors: `Refused` for an item that readers do not agree on.
        """
        shape = self._recent
        if shape is not None:
            match = shape.match(text)
            if match is not None:
                groups = match.groups()
                parts = [groups[i] for i in shape.runs]
                parts.insert(shape.cluster_at, self._cluster)
                tags = 0 if shape.tags < 0 else self.tags_code(groups[shape.tags])
                return Rewritten(_SEPARATOR.join(parts), tags, 0, False)  # noqa: FBT003 - a field
        return self._rewrite_by_plan(text)

    def _rewrite_by_plan(self, text: bytes) -> Rewritten:
        items = items_of(text)
        keys = tuple([item.partition(_EQUALS)[0] for item in items])
        plan = self._plans.get(keys)
        if plan is None:
            plan = self._add_plan(keys)
        else:
            if not plan.shaped:
                plan.shape, plan.shaped = _make_shape(keys, plan.order), True
            self._recent = plan.shape
        if plan.timer:
            check_timer(items, self.now_ms())
        items.append(self._cluster)
        if plan.generate_unique:
            items.append(b"UNIQ_KEY\x01" + self._unique_id())
        delay_level = 0 if plan.delay < 0 else sent_level(items[plan.delay][6:])
        transactional = plan.transaction >= 0 and items[plan.transaction][9:].lower() == b"true"
        if delay_level or transactional:  # RocketMQ has put WAIT back when it writes the map again
            written_again = sorted(items, key=lambda item: item.startswith(_WAIT))
            stored = _SEPARATOR.join(written_again)
        else:
            picked = plan.pick(items)
            stored = picked if plan.single else _SEPARATOR.join(picked)
        return Rewritten(
            stored,
            0 if plan.tags < 0 else self.tags_code(items[plan.tags][5:]),
            delay_level,
            transactional,
        )

    def batch_suffix(self, text: bytes) -> bytes:
        """Return what is put behind the properties of every element of a batch.

        RocketMQ 4.9 appends the properties of the batch itself, with CLUSTER and with WAIT kept.
        Errors: as `rewrite`.
        """
        suffix = self._suffixes.get(text)
        if suffix is None:
            suffix = self._make_suffix(text)
            if len(text) <= REMEMBERED_BYTES_MAX:
                if len(self._suffixes) >= SUFFIXES_MAX:
                    self._suffixes.clear()
                self._suffixes[text] = suffix
        return suffix

    def _make_suffix(self, text: bytes) -> bytes:
        pairs: dict[str, bytes] = {}
        for item in items_of(text):
            pairs[item.partition(_EQUALS)[0].decode("utf-8", "replace")] = item
        pairs["CLUSTER"] = self._cluster
        values = list(pairs.values())
        return _SEPARATOR.join([values[i] for i in java_map_order(list(pairs))])

    def tags_code(self, tags: bytes) -> int:
        """Return ``String.hashCode`` of the tags, sign-extended; 0 when empty."""
        code = self._tags_codes.get(tags)
        if code is None:
            code = java_string_hash(tags.decode("utf-8", "replace"))
            if len(tags) <= REMEMBERED_BYTES_MAX:
                if len(self._tags_codes) >= TAGS_REMEMBERED_MAX:
                    self._tags_codes.clear()
                self._tags_codes[tags] = code
        return code

    def tags_codes_of(self, texts: Iterable[bytes]) -> list[int]:
        """Return the tags codes of regular property texts; the last TAGS wins, as at parse."""
        codes: list[int] = []
        known = self._tags_codes
        for text in texts:
            at = text.rfind(b"\x02TAGS\x01") + 1
            if not at and not text.startswith(b"TAGS\x01"):
                codes.append(0)
                continue
            end = text.find(_SEPARATOR, at)
            tags = text[at + 5 : end] if end >= 0 else text[at + 5 :]
            code = known.get(tags)
            codes.append(self.tags_code(tags) if code is None else code)
        return codes

    def _add_plan(self, keys: tuple[bytes, ...]) -> _Plan:
        plan = _make_plan(keys)
        if len(keys) <= PLAN_NAMES_MAX and sum(map(len, keys)) <= REMEMBERED_BYTES_MAX:
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            self._plans[keys] = plan
        return plan


def _make_plan(keys: tuple[bytes, ...]) -> _Plan:
    # The map as Java fills it: a repeated name keeps its place and takes the later value.
    places: dict[str, int] = {}
    for position, key in enumerate(keys):
        places[key.decode("utf-8", "replace")] = position
    generate = "UNIQ_KEY" not in places
    places["CLUSTER"] = len(keys)
    if generate:
        places["UNIQ_KEY"] = len(keys) + 1
    names = list(places)
    order = [places[names[i]] for i in java_map_order(names) if names[i] != "WAIT"]
    return _Plan(
        order=order,
        pick=itemgetter(*order),
        single=len(order) == 1,
        tags=places.get("TAGS", -1),
        delay=places.get("DELAY", -1),
        transaction=places.get("TRAN_MSG", -1),
        timer=any(name in TIMERS for name in keys),
        generate_unique=generate,
    )


def _make_shape(keys: tuple[bytes, ...], order: list[int]) -> _Shape | None:
    """Return the shape of texts with these names, None if their items change places.

    ``order`` holds the positions of the stored items, CLUSTER being behind all received ones.
    """
    cluster = len(keys)
    received = [position for position in order if position != cluster]
    looked_at = {b"DELAY", b"TRAN_MSG", b"CLUSTER", *TIMERS}
    plain = not looked_at & set(keys) and len(set(keys)) == len(keys)
    if not plain or received != sorted(received) or cluster + 1 in order or not received:
        return None
    rank = {position: number for number, position in enumerate(received)}
    runs: list[int] = []
    pattern, open_run, group, tags = b"", False, 0, -1
    cluster_before = order.index(cluster)
    cluster_at = -1
    for position, key in enumerate(keys):
        stored = position in rank
        if rank.get(position) == cluster_before:
            cluster_at = len(runs)
            pattern += b")" if open_run else b""
            open_run = False
        elif not stored and open_run:
            pattern, open_run = pattern + b")", False
        pattern += b"\x02" if position else b""
        if stored and not open_run:
            pattern, open_run = pattern + b"(", True
            runs.append(group)
            group += 1
        value = b"[^\x01\x02]+"
        if key == b"TAGS" and stored:
            value, tags, group = b"(" + value + b")", group, group + 1
        pattern += re.escape(key) + b"\x01" + value
    pattern += b")" if open_run else b""
    return _Shape(
        match=re.compile(pattern, re.DOTALL).fullmatch,
        runs=tuple(runs),
        cluster_at=len(runs) if cluster_at < 0 else cluster_at,
        tags=tags,
    )


def is_regular(text: bytes) -> bool:
    """Tell whether a text, not empty and without a separator at its end, is items all through.

    Each has a name and a value then, and all readers find the same in it.
    """
    skeleton = text.translate(None, _CONTENT)
    return (
        skeleton == b"\x01\x02" * (len(skeleton) // 2) + _EQUALS
        and b"\x01\x02" not in text
        and b"\x02\x01" not in text
        and text[0] != 1
        and text[-1] != 1
    )


def items_of(text: bytes) -> list[bytes]:
    """Split a property text into ``name 0x01 value`` items as MessageDecoder reads it.

    Errors: `Refused` for a value that holds 0x01.
    """
    text = text.removesuffix(_SEPARATOR)
    if not text:
        return []
    if is_regular(text):
        return text.split(_SEPARATOR)
    items = pairs_of(text)
    if any(item.count(_EQUALS) > 1 for item in items):
        raise Refused("the message is illegal: the value of a property holds 0x01")
    return items


def pairs_of(text: bytes) -> list[bytes]:
    """Return the items of a text that have a name and a value."""
    return [item for item in text.split(_SEPARATOR) if 0 < item.find(_EQUALS) < len(item) - 1]
