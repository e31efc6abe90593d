"""The keys of a message, found in its raw properties, and their hashes, remembered in part.

Indexed are UNIQ_KEY, then each word of KEYS, which is split at spaces. A client's UNIQ_KEY is its
address, process and loader, the milliseconds and a counter of four hexadecimal digits, so that all
of it but the last six digits is the same for a quarter of a second: the hash of that part is kept.
Pure. Source: spec/wire.md 4.3, 4.5; RocketMQ IndexService.buildIndex, MessageClientIDSetter.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from ledgermq.remoting.protocol.properties import find_property
from store.index.codec import folded, text_hash
from store.layout import Row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.layout import Keyed

REMEMBERED_MAX: Final = 8192
"""Beginnings of unique keys whose hash is kept."""
TOPICS_MAX: Final = 16_384
"""Topics of which something is kept."""
HEAD_DIGITS: Final = 26
"""Of the 32 digits of a client's key: address, process, loader, and the time but for 256 ms."""
_DIGITS: Final = b"0123456789ABCDEF"
_PAIRS: Final = {bytes((high, low)): 31 * high + low for high in _DIGITS for low in _DIGITS}
_PAIRS_BEFORE_TWO: Final = {pair: value * 31**2 for pair, value in _PAIRS.items()}
_PAIRS_BEFORE_FOUR: Final = {pair: value * 31**4 for pair, value in _PAIRS.items()}
"""What two digits add to a hash, by how many follow them."""
_MASK: Final = 0xFFFFFFFF
_SHIFT: Final = pow(31, 32, 1 << 32)
"""What 32 more digits do to the hash of what stands before them."""
_HEAD_SHIFT: Final = pow(31, 32 - HEAD_DIGITS, 1 << 32)


def unique_key(properties: bytes) -> bytes | None:
    """Return UNIQ_KEY, None for none."""
    at = properties.rfind(b"UNIQ_KEY\x01")
    if at < 0:
        return None
    if at and properties[at - 1] != 2:
        return find_property(properties, b"UNIQ_KEY")
    end = properties.find(b"\x02", at)
    return (properties[at + 9 :] if end < 0 else properties[at + 9 : end]) or None


def words(properties: bytes) -> list[bytes]:
    """Return the words of KEYS."""
    if b"KEYS\x01" not in properties:
        return []
    found = find_property(properties, b"KEYS")
    return [] if found is None else [word for word in found.split(b" ") if word]


def has_key(properties: bytes, key: bytes) -> bool:
    """Tell whether a message has this unique key, or this word among its keys."""
    return unique_key(properties) == key or key in words(properties)


class _Known(NamedTuple):
    """What is remembered of a topic: hashes in 0..2^32-1."""

    base: int
    """Of ``topic#``."""
    share: int
    """What ``topic#`` adds to the hash of a unique key of 32 digits behind it."""


class KeyHashes:
    """Hashes of keys, quick for those of clients, over however many topics they spread."""

    def __init__(self) -> None:
        self._topics: dict[bytes, _Known] = {}
        self._heads: dict[bytes, int] = {}
        """Of all but the last six digits of a unique key, ready for these."""

    def rows(self, messages: "Iterable[Keyed]", last: int) -> list[Row]:
        """Return a row for each key of the messages behind ``last``, in the order of the index."""
        rows: list[Row] = []
        add = rows.append
        known = _NONE
        learnt: bytes | None = None
        heads, share = self._heads, known.share
        pairs, before_two, before_four = _PAIRS, _PAIRS_BEFORE_TWO, _PAIRS_BEFORE_FOUR
        # The loop of a broker: what is quick for the keys of clients, by hand.
        for topic, properties, physical, stored, flags in messages:
            if physical <= last or flags & 12 == 12:
                continue
            if topic != learnt:
                known = self._topics.get(topic) or self._learn(topic)
                learnt, share = topic, known.share
            at = properties.rfind(b"UNIQ_KEY\x01")
            if at >= 0:
                if properties.find(b"\x02", at) == at + 41 and (not at or properties[at - 1] == 2):
                    try:
                        value = (
                            share
                            + heads[properties[at + 9 : at + 35]]
                            + before_four[properties[at + 35 : at + 37]]
                            + before_two[properties[at + 37 : at + 39]]
                            + pairs[properties[at + 39 : at + 41]]
                        ) & 0xFFFFFFFF
                    except KeyError:
                        value = self._unusual(known, properties[at + 9 : at + 41])
                    if value >= 0x80000000:
                        value = (0x100000000 - value) & 0x7FFFFFFF
                    add((value, physical, stored))
                else:
                    key = unique_key(properties)
                    if key is not None:
                        add((folded(text_hash(key, known.base)), physical, stored))
            if b"KEYS\x01" in properties:
                rows += [
                    (folded(text_hash(word, known.base)), physical, stored)
                    for word in words(properties)
                ]
        return rows

    def _learn(self, topic: bytes) -> _Known:
        if len(self._topics) >= TOPICS_MAX:
            self._topics.clear()
        base = text_hash(topic + b"#")
        known = self._topics[topic] = _Known(base, base * _SHIFT & _MASK)
        return known

    def _unusual(self, known: _Known, key: bytes) -> int:
        """Return the hash of a key of 32 bytes that is no client's, or whose beginning is new."""
        if not key.isascii():
            return text_hash(key, known.base)
        head, rest = key[:HEAD_DIGITS], key[HEAD_DIGITS:]
        value = self._heads.get(head)
        if value is None:
            value = text_hash(head) * _HEAD_SHIFT & _MASK
            _remember(self._heads, head, value)
        return known.share + value + text_hash(rest) & _MASK


def _remember(values: dict[bytes, int], text: bytes, value: int) -> None:
    if len(values) >= REMEMBERED_MAX:
        values.clear()
    values[text] = value


_NONE: Final = _Known(0, 0)
