"""The keys of a message, found in its raw properties, and their hashes, remembered in part.

Indexed are UNIQ_KEY, then each word of KEYS, which is split at spaces. A client's UNIQ_KEY is its
address, process and loader, the milliseconds and a counter of four hexadecimal digits, so that all
but the counter is the same for the messages of one millisecond: the hash of that part is kept.
Pure. Source: protocol.md 4.3, 4.5; RocketMQ IndexService.buildIndex, MessageClientIDSetter.
"""

from typing import TYPE_CHECKING, Final

from remoting.protocol.message import TRANSACTION_ROLLBACK
from remoting.protocol.properties import find_property
from store.index.codec import folded, text_hash

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.layout import Keyed

Row = tuple[int, int, int]
"""``(key hash, physical offset, store timestamp)``."""

HEADS_MAX: Final = 4096
"""Parts of unique keys whose hash is kept, of all topics together."""
TOPICS_MAX: Final = 1024
COUNTER_DIGITS: Final = 4
UNIQUE_BYTES: Final = 32
_DIGITS: Final = b"0123456789ABCDEF"
_PAIRS: Final = [bytes((high, low)) for high in _DIGITS for low in _DIGITS]
_LAST_PAIR: Final = {pair: 31 * pair[0] + pair[1] for pair in _PAIRS}
_FIRST_PAIR: Final = {pair: 961 * value for pair, value in _LAST_PAIR.items()}
_COUNTER_WEIGHT: Final = 31**COUNTER_DIGITS
_MASK: Final = 0xFFFFFFFF
_HALF: Final = 0x80000000


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


class KeyHashes:
    """Hashes of keys, quick for those of clients."""

    def __init__(self) -> None:
        self._topics: dict[bytes, tuple[int, dict[bytes, int]]] = {}
        self._heads_count = 0

    def rows(self, messages: "Iterable[Keyed]", last: int) -> list[Row]:
        """Return a row for each key of the messages behind ``last``, in the order of the index."""
        rows: list[Row] = []
        add = rows.append
        learnt: bytes | None = None
        base = 0
        heads: dict[bytes, int] = {}
        # The loop of a broker: what is quick for the keys of clients, by hand.
        for topic, properties, physical, stored, flags in messages:
            if physical <= last or flags & TRANSACTION_ROLLBACK == TRANSACTION_ROLLBACK:
                continue
            if topic != learnt:
                base, heads = self._topics.get(topic) or self._learn(topic)
                learnt = topic
            at = properties.rfind(b"UNIQ_KEY\x01")
            if at >= 0:
                end = properties.find(b"\x02", at)
                key = properties[at + 9 : end] if end >= 0 else properties[at + 9 :]
                if at and properties[at - 1] != 2:
                    key = unique_key(properties) or b""
                try:
                    value = (
                        heads[key[:-4]] + _FIRST_PAIR[key[-4:-2]] + _LAST_PAIR[key[-2:]]
                    ) & _MASK
                    add((value if value < _HALF else folded(value), physical, stored))
                except KeyError:
                    if key:
                        value = self._unusual(base, heads, key)
                        add((folded(value), physical, stored))
            if b"KEYS\x01" in properties:
                rows += [
                    (folded(text_hash(word, base)), physical, stored) for word in words(properties)
                ]
        return rows

    def _learn(self, topic: bytes) -> tuple[int, dict[bytes, int]]:
        if len(self._topics) >= TOPICS_MAX:
            self._forget()
        known = self._topics[topic] = (text_hash(topic + b"#"), {})
        return known

    def _unusual(self, base: int, heads: dict[bytes, int], key: bytes) -> int:
        """Return the hash of a key that is no client's, or whose beginning is new."""
        if len(key) >= UNIQUE_BYTES and key.isascii():
            if self._heads_count >= HEADS_MAX:
                self._forget()
            self._heads_count += 1
            heads[key[:-COUNTER_DIGITS]] = (
                text_hash(key[:-COUNTER_DIGITS], base) * _COUNTER_WEIGHT & _MASK
            )
        return text_hash(key, base)

    def _forget(self) -> None:
        self._topics.clear()
        self._heads_count = 0
