"""The door of a send: what it contains as it will be stored, or why it is not let in.

Here is decided what a record, and so a follower, a restart or a reader, can be handed: sizes,
flags, properties. It happens before anything is created, appended or made to wait.

A batch is let in whole or not at all. RocketMQ 4.9 puts the properties of the batch behind those of
every element, so the sizes that count are those of the result; they are added up before anything is
built. All texts are looked at as one, which costs little when they are as clients write them; one
by one only when they are not.
Pure. Source: spec/wire.md 3.3, 4.6, 4.7; RocketMQ SendMessageProcessor, MessageExtBatchEncoder,
MessageDecoder.encodeMessages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from broker.answers import illegal
from broker.sends.half import half_of
from broker.sends.properties import is_regular, items_of, pairs_of
from broker.sends.rules import (
    PLAIN_FLAGS,
    TIMERS,
    UNCHECKED_KEYS_BYTES,
    Refused,
    check_keys,
    check_timer,
    client_flags,
    sent_level,
)
from broker.sends.schedule import scheduled
from broker.state.topic_config import RETRY_PREFIX
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.limits import (
    BATCH_MESSAGES_MAX,
    BATCH_PROPERTIES_BYTES_MAX,
    BATCH_PROPERTIES_MAX,
)
from ledgermq.remoting.protocol.message import PROPERTIES_BYTES_MAX, TRANSACTION_MASK, split_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.sends.properties import PropertyRewriter, Rewritten
    from ledgermq.remoting.protocol.headers import SendHeader
    from store.results import PutMessage

_SEPARATOR: Final = b"\x02"
_ODD_FLAGS: Final = ~PLAIN_FLAGS


class Columns(NamedTuple):
    """What the messages of a batch have each of their own."""

    flags: Sequence[int]
    bodies: Sequence[bytes]
    properties: Sequence[bytes]
    tags_codes: Sequence[int]


class Door:
    """Lets sends of one broker in.

    Args:
        rewriter: the broker's changes to properties.
        body_bytes_max: largest body of a message, and of a batch.
        delay_level_max: the highest level of delay; a higher one counts as it.
        half: returns a message as it waits for the end of its transaction. Errors: `Refused`.
    """

    __slots__ = (
        "_body_bytes_max",
        "_delay_level_max",
        "_half",
        "_rewrite",
        "_rewriter",
        "_too_long",
    )

    def __init__(
        self,
        rewriter: PropertyRewriter,
        body_bytes_max: int,
        delay_level_max: int,
        half: Callable[[PutMessage], PutMessage] = half_of,
    ) -> None:
        self._rewriter = rewriter
        self._rewrite = rewriter.rewrite
        self._body_bytes_max = body_bytes_max
        self._delay_level_max = delay_level_max
        self._half = half
        self._too_long = illegal(body_bytes_max)

    def put_by(self, message: PutMessage, properties: Rewritten) -> PutMessage:
        """Return a message that was let in as it waits: for its level, or for a transaction's end.

        What a consumer sends back is no half any more, although its properties say so. The delay
        of a half begins when it is committed. Errors: `Refused`.
        """
        level = properties.delay_level
        if properties.transactional and not (level and message.reconsume_times > 0):
            return self._half(message)
        return scheduled(message, level, self._delay_level_max) if level else message

    def read(
        self, header: SendHeader, body: bytes, body_bytes_min: int = 1
    ) -> tuple[int, Rewritten]:
        """Return sysFlag and properties of a message as they are stored. Errors: `Refused`."""
        text = header.properties or ""
        is_illegal = not body_bytes_min <= len(body) <= self._body_bytes_max
        if is_illegal or len(text) > PROPERTIES_BYTES_MAX:
            raise Refused(self._too_long)
        properties = self._rewrite(text.encode("utf-8", "replace"))
        sys_flag = header.sys_flag
        if sys_flag & _ODD_FLAGS:
            if properties.transactional:
                sys_flag &= ~TRANSACTION_MASK  # a half is stored as what it will be
            sys_flag = client_flags(sys_flag)
        size_bytes = len(properties.text)
        if size_bytes > UNCHECKED_KEYS_BYTES:
            if size_bytes > PROPERTIES_BYTES_MAX:
                raise Refused(self._too_long)
            check_keys(properties.text)
        return sys_flag, properties

    def read_batch(self, header: SendHeader, body: bytes) -> tuple[int, Columns]:
        """Return sysFlag and messages of a batch as they are stored.

        Errors: `Refused` if one of them must not be stored, or all together.
        """
        text = header.properties or ""
        if (
            len(body) > self._body_bytes_max
            or len(text) > PROPERTIES_BYTES_MAX
            or header.topic.startswith(RETRY_PREFIX)
            or header.sys_flag & TRANSACTION_MASK
        ):
            raise Refused(self._too_long)
        sys_flag = client_flags(header.sys_flag)
        suffix = self._rewriter.batch_suffix(text.encode("utf-8", "replace"))
        return sys_flag, _columns(self._rewriter, suffix, body)


def _columns(rewriter: PropertyRewriter, suffix: bytes, body: bytes) -> Columns:
    """Return the messages in the body of a batch; ``suffix`` goes behind their properties."""
    try:
        elements = split_batch(body, BATCH_MESSAGES_MAX)
    except RemoteProtocolError as error:
        raise Refused(f"the batch is illegal: {error}") from error
    if not elements:
        raise Refused("the batch is illegal: there is no message in it")
    flags, bodies, own = zip(*elements, strict=True)
    if not all(bodies):
        raise Refused("the batch is illegal: a message without a body")
    if max(map(len, own)) > PROPERTIES_BYTES_MAX:
        raise Refused
    stored_bytes = sum(map(len, own)) + len(own) * (len(suffix) + 1)
    if stored_bytes > BATCH_PROPERTIES_BYTES_MAX:
        raise Refused(
            f"the batch is illegal: {stored_bytes} bytes of properties, those of the batch counted "
            f"for each message, the limit is {BATCH_PROPERTIES_BYTES_MAX}"
        )
    texts, joined = _texts(own, suffix)
    _check(texts, joined, rewriter.now_ms)
    if b"TAGS\x01" not in joined:
        return Columns(flags, bodies, texts, [0] * len(texts))
    return Columns(flags, bodies, texts, rewriter.tags_codes_of(texts))


def _texts(own: Sequence[bytes], suffix: bytes) -> tuple[list[bytes], bytes]:
    """Return the property text of each message, and all of them joined: regular, and UTF-8."""
    next_suffix = _SEPARATOR + suffix
    texts = [text + next_suffix if text and text[-1] != 2 else text + suffix for text in own]
    joined = _SEPARATOR.join(texts)
    if not joined.isascii() and not _is_utf8(joined):
        # Java's readers see the replacement; so do all others when that is what is stored.
        texts = [text.decode("utf-8", "replace").encode() for text in texts]
        joined = _SEPARATOR.join(texts)
    if joined.count(_SEPARATOR) >= BATCH_PROPERTIES_MAX:
        raise Refused(f"the batch is illegal: more than {BATCH_PROPERTIES_MAX} properties")
    if not is_regular(joined):
        texts = [_SEPARATOR.join(pairs_of(text)) for text in texts]
        joined = _SEPARATOR.join(texts)
        items_of(joined)
    return texts, joined


def _check(texts: Sequence[bytes], joined: bytes, now_ms: Callable[[], int]) -> None:
    if max(map(len, texts)) > PROPERTIES_BYTES_MAX:
        raise Refused
    if b"DELAY\x01" in joined or b"TRAN_MSG\x01" in joined:
        for item in dict.fromkeys(joined.split(_SEPARATOR)):
            name, _, value = item.partition(b"\x01")
            delay_level = sent_level(value) if name == b"DELAY" else 0
            if delay_level or (name == b"TRAN_MSG" and value.lower() == b"true"):
                raise Refused("the batch is illegal: delayed or transaction messages")
    if b"TIMER_DEL" in joined:
        for text in texts:
            items = text.split(_SEPARATOR)
            if any(item.partition(b"\x01")[0] in TIMERS for item in items):
                check_timer(items, now_ms())
    if len(joined) > UNCHECKED_KEYS_BYTES:
        check_keys(joined)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
